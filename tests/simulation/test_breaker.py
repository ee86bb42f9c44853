"""A breaker pauses a subscription before its topic is empty, and one bad key pauses nothing. In
virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import Delivery, Reject, Retry
from tailrace.operations.explain import explain
from tailrace.operations.status import status
from tailrace.operations.subscription.describe import show_subscription
from tailrace.subscription.store.pause import BREAKER
from tailrace.testing import AppRun, run
from tests.support.app_runs import app_of, succeeded

MESSAGES = 2000
SOON = Retry(attempts=3, first="1s", max="1s")


class Deploy:
    """A handler that fails every message of some keys, or of all, until it is mended."""

    def __init__(self, error: type[Exception], *, only: str | None = None) -> None:
        self.broken = True
        self._error = error
        self._only = only

    def __call__(self, order: Delivery[int]) -> None:
        if self.broken and self._only in (None, order.key):
            raise self._error("the deploy is bad")


def pushed(handler: Any, keys: int, **options: Any) -> AppRun:
    """Return a run with messages of so many keys, in turn."""
    shop = run(app_of(handler, **{"retry": SOON} | options))
    topic = shop.hub.topic("orders")
    topic.push_many([(f"k{number % keys}", number) for number in range(MESSAGES)])
    return shop


@pytest.mark.parametrize("error", [Reject, ConnectionError])
def test_a_deploy_that_fails_everything_parks_the_subscription_and_not_the_topic(
    error: type[Exception],
) -> None:
    deploy = Deploy(error)
    with pushed(deploy, keys=MESSAGES) as shop:
        shop.until_idle(calls_max=50_000)
        crm = shop.hub.subscription("mailer")
        paused = crm.describe().paused
        assert paused is not None
        assert paused.by == BREAKER
        assert "messages in a row became dead letters; last error: " in paused.reason
        assert "the deploy is bad (shard " in paused.reason
        assert len(shop.dead_letters("mailer")) <= 200, "about a run and what was in flight"
        assert shop.pending("mailer") >= MESSAGES - 200
        before = len(shop.deliveries("mailer"))
        shop.advance("1h")
        assert len(shop.deliveries("mailer")) == before
        deploy.broken = False
        crm.resume()
        shop.redeliver("mailer", all=True)
        shop.until_idle(calls_max=50_000)
        assert sorted(succeeded(shop)) == list(range(MESSAGES))
        assert crm.describe().paused is None


def test_a_deploy_that_stays_bad_pauses_again_after_it_was_resumed() -> None:
    with pushed(Deploy(Reject), keys=MESSAGES) as shop:
        before = 0
        for _ in range(3):
            shop.until_idle()
            assert shop.hub.subscription("mailer").resume()
            letters = len(shop.dead_letters("mailer"))
            assert 0 < letters - before <= 200
            before = letters


@pytest.mark.parametrize(("policy", "messages"), [("block", 10_001), ("continue", 1000)])
def test_a_key_with_many_dead_letters_pauses_nothing(policy: str, messages: int) -> None:
    """Under `block` 10,000 messages follow the first one uncalled; under `continue` all fail."""
    with run(app_of(Deploy(Reject, only="bad"), retry=SOON, on_dead_letter=policy)) as shop:
        topic = shop.hub.topic("orders")
        topic.push_many([("bad", number) for number in range(messages)])
        topic.push_many([(f"k{number}", number) for number in range(10)])
        shop.until_idle(calls_max=20_000)
        assert shop.hub.subscription("mailer").describe().paused is None
        assert len(shop.dead_letters("mailer")) == messages
        assert sorted(succeeded(shop)) == list(range(10))
        shop.push("orders", 10, key="k11")
        shop.until_idle()
        assert succeeded(shop)[-1] == 10


def test_without_a_breaker_every_message_becomes_a_dead_letter() -> None:
    with pushed(Deploy(Reject), keys=MESSAGES, breaker="off") as shop:
        shop.until_idle()
        assert len(shop.dead_letters("mailer")) == MESSAGES


def test_status_explain_and_show_say_who_paused_and_why_and_how_to_continue() -> None:
    with pushed(Deploy(Reject), keys=MESSAGES) as shop:
        shop.until_idle()
        (problem,) = (each for each in status(shop.hub).problems if each.what.startswith("PAUSED"))
        reason = "messages in a row became dead letters; last error: Reject: the deploy is bad"
        assert BREAKER in problem.what
        assert reason in problem.what
        assert problem.remedy == "tailrace subscription resume mailer"
        detail = show_subscription(shop.hub, "mailer")
        assert reason in detail.why
        assert BREAKER in detail.why
        found = explain(shop.hub, "mailer")
        assert reason in found.headline
        assert any("list --by error" in each.command for each in found.remedies)
