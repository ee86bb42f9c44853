"""Calls of every operation on subscriptions, for a hub with the subscription ``mailer`` of
``orders``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from tailrace.clock import utc_time
from tailrace.hub.hub import Hub
from tailrace.message import Partition, Position
from tailrace.operations import lag
from tailrace.operations.dead_letters import requests
from tailrace.operations.subscription import (
    changes,
    checks,
    create,
    describe,
    explain_key,
    explain_subscription,
    health,
    message_verdict,
    partition_verdict,
    pause,
    reset,
    reshard,
    run,
    topic_effects,
)
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.describe import SubscriptionInfo
from tailrace.subscription.store.describe import describe as described
from tailrace.subscription.store.names import ShardName
from tailrace.subscription.worker.worker import Worker
from tests.support.pipelines.lake import Lake

NAME: Final = "mailer"
ORDERS: Final = Partition("orders", 0, 0)


def _info(operator: Lake) -> SubscriptionInfo:
    return described(operator.hub.backend, NAME)


def _run(hub: Hub) -> None:
    assert run.run_worker(hub, NAME, lambda delivery: None, Worker.stop).drained


def _request(hub: Hub) -> None:
    command = requests.LetterCommand(RequestAction.REDELIVER, everything=True)
    made = requests.make_request(hub, NAME, command)
    report = requests.await_request(hub, NAME, command, made, timedelta())
    assert report == requests.look_at(hub, NAME, command, made)


SUBSCRIPTIONS: Final[dict[Callable[..., Any], Callable[[Lake], Any]]] = {
    pause.pause: lambda o: pause.pause(o.hub, NAME, "a test"),
    pause.resume: lambda o: pause.resume(o.hub, NAME),
    pause.read_pause: lambda o: pause.read_pause(o.hub, NAME),
    changes.update: lambda o: changes.update(o.hub, NAME, attempts="3"),
    reset.plan_reset: lambda o: reset.plan_reset(o.hub, NAME, "end"),
    reset.reset: lambda o: reset.reset(o.hub, NAME, "end"),
    changes.plan_delete: lambda o: changes.plan_delete(o.hub, NAME),
    changes.delete: lambda o: changes.delete(o.hub, NAME),
    checks.check_subscription: lambda o: checks.check_subscription(o.hub, _info(o), utc_time(0)),
    create.create_subscription: lambda o: create.create_subscription(o.hub, "crm", "orders"),
    describe.describe_each: lambda o: describe.describe_each(o.hub),
    describe.list_subscriptions: lambda o: describe.list_subscriptions(o.hub),
    describe.show_subscription: lambda o: describe.show_subscription(o.hub, NAME),
    describe.read_events: lambda o: describe.read_events(o.hub, NAME, 10),
    describe.summarize: lambda o: describe.summarize(o.hub, _info(o)),
    explain_key.explain_key: lambda o: explain_key.explain_key(o.hub, NAME, "c1"),
    explain_key.owner_fact: lambda o: explain_key.owner_fact(o.hub, 0, None),
    explain_subscription.explain_subscription: lambda o: explain_subscription.explain_subscription(
        o.hub, NAME
    ),
    explain_subscription.explain_shard: lambda o: explain_subscription.explain_shard(
        o.hub, NAME, ShardName(0, 0)
    ),
    explain_subscription.part_of_topic: lambda o: explain_subscription.part_of_topic(
        o.hub, _info(o)
    ),
    health.judge: lambda o: health.judge(o.hub, _info(o)),
    health.silent_workers: lambda o: health.silent_workers(o.hub, _info(o)),
    lag.list_lags: lambda o: lag.list_lags(o.hub),
    lag.lag_of_consumer: lambda o: lag.lag_of_consumer(o.hub, NAME),
    message_verdict.subscriptions_with: lambda o: message_verdict.subscriptions_with(
        o.hub, "orders"
    ),
    message_verdict.delivering: lambda o: message_verdict.delivering(o.hub, "orders"),
    message_verdict.judge_message: lambda o: message_verdict.judge_message(
        o.hub, NAME, Position(*ORDERS, 8)
    ),
    partition_verdict.judge_subscribed_partition: lambda o: (
        partition_verdict.judge_subscribed_partition(o.hub, NAME, ORDERS)
    ),
    reshard.plan_reshard: lambda o: reshard.plan_reshard(o.hub, NAME, 1),
    reshard.reshard: lambda o: reshard.reshard(o.hub, NAME, 1),
    requests.subscription_named: lambda o: requests.subscription_named(o.hub, NAME),
    requests.make_request: lambda o: _request(o.hub),
    requests.await_request: lambda o: _request(o.hub),
    requests.look_at: lambda o: _request(o.hub),
    run.run_worker: lambda o: _run(o.hub),
    topic_effects.effect_facts: lambda o: list(
        topic_effects.effect_facts(o.hub, "orders", o.hub.topic("orders").view.definition)
    ),
    topic_effects.deletion_facts: lambda o: list(topic_effects.deletion_facts(o.hub, "orders")),
}
"""An operation, and a call of it."""
