"""Every operation, on a backend that does no more than the contract.

Each works, or raises `NotSupported`, which names the operation and the backend.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tailrace import operations
from tailrace.errors import NotSupported
from tailrace.group.store.describe import show_group
from tailrace.hub.hub import Hub
from tailrace.message import Partition, Position
from tailrace.operations import audit, explain, hub_info, status
from tailrace.operations.dead_letters import listing, mailboxes, resolve
from tailrace.operations.group import changes as group_changes
from tailrace.operations.group import explain_group, health, partition_state, stuck
from tailrace.operations.group.lookup import check_group
from tailrace.operations.metrics.hub_metrics import serve_metrics
from tailrace.operations.pipeline import (
    commit_log,
    describe,
    explain_pipeline,
    explain_writer,
    forget,
    interventions,
    lookup,
    namespaces,
    rewind,
    trial,
)
from tailrace.operations.storage import compaction, segments, storage_use
from tailrace.operations.topic import (
    changes,
    create,
    explain_message,
    explain_partition,
    explain_topic,
    push,
    tail,
)
from tailrace.operations.topic import describe as topics
from tailrace.operations.topic.lookup import find_topic
from tailrace.testing import MemoryBackend
from tailrace.topic.offset_spec import parse_offset_spec
from tailrace.topic.router import RouterKind
from tests.support.pipelines.lake import LOG, Lake
from tests.unit.operations.queue.operation_cases import QUEUES
from tests.unit.operations.source.operation_cases import SOURCES
from tests.unit.operations.subscription.operation_cases import SUBSCRIPTIONS

ORDERS: Final = Partition("orders", 0, 0)


@pytest.fixture
def operator(tmp_path: Path) -> Lake:
    """A hub in memory with a topic, a group, a subscription, a queue, and a pipeline with a dead
    letter."""
    hub = Hub.from_backend(MemoryBackend("memory", gap_every=3))
    orders = hub.create_topic("orders", partitions=1)
    orders.push_many([(f"c{number % 3}", number) for number in range(10)])
    with orders.tail(group="billing", limit=4) as consumer:
        assert len(list(consumer)) == 4
    hub.create_subscription("mailer", topic="orders")
    hub.queue("jobs", shards=2).push_many([("c7", 1), ("c8", 2)])
    lake = Lake(hub, tmp_path, options={"on_error": "park"})
    lake.refuse(3)
    lake.run()
    return lake


def _letter(operator: Lake) -> str:
    (letter,) = listing.list_letters(operator.hub, "lake/crm", 10)
    return letter.position


def _failing(operator: Lake) -> Lake:
    """The same, with a writer that has failed."""
    operator.options = {}
    operator.rows = 32
    operator.refuse(25)
    assert not operator.run()
    return operator


Call = Callable[[Lake], Any]

WORKS: Final[dict[Callable[..., Any], Call]] = {
    audit.audit_topic: lambda o: audit.audit_topic(o.hub),
    audit.append_audit: lambda o: audit.append_audit(o.hub, audit.audit_entry("test", "orders")),
    audit.read_audit: lambda o: audit.read_audit(o.hub, None, 10),
    audit.read_discarded: lambda o: audit.read_discarded(o.hub, None, 10),
    mailboxes.open_mailbox: lambda o: mailboxes.open_mailbox(o.hub, "lake/crm"),
    mailboxes.count_group_letters: lambda o: mailboxes.count_group_letters(o.hub, "billing"),
    mailboxes.find_group_letter: lambda o: mailboxes.find_group_letter(
        o.hub, "billing", f"{ORDERS}@8"
    ),
    listing.count_letters: lambda o: listing.count_letters(
        o.hub, lookup.find_pipeline(o.hub, "lake")
    ),
    listing.list_letters: lambda o: listing.list_letters(o.hub, "lake/crm", 10),
    listing.group_letters: lambda o: listing.group_letters(o.hub, "lake/crm"),
    listing.show_letters: lambda o: listing.show_letters(o.hub, "lake/crm", [_letter(o)]),
    resolve.redeliver: lambda o: resolve.redeliver(o.hub, "lake/crm", None),
    resolve.discard: lambda o: resolve.discard(o.hub, "lake/crm", [_letter(o)], "a test"),
    explain.explain: lambda o: [
        explain.explain(o.hub, subject)
        for subject in ("orders/0.0", "lake/crm", "orders", "billing", "lake.commits", "lake")
    ],
    explain_group.explain_group: lambda o: explain_group.explain_group(o.hub, "billing"),
    explain_group.waiting_facts: lambda o: list(
        explain_group.waiting_facts(o.hub, show_group(o.hub.backend, "billing"), None)
    ),
    check_group: lambda o: check_group(o.hub, "billing"),
    health.groups_of: lambda o: list(health.groups_of(o.hub, "orders")),
    health.judge: lambda o: health.judge(o.hub, show_group(o.hub.backend, "billing")),
    partition_state.judge_partition: lambda o: [
        partition_state.judge_partition(o.hub, group, each, [])
        for group in [show_group(o.hub.backend, "billing")]
        for each in group.partitions
    ],
    explain_message.explain_message: lambda o: explain_message.explain_message(
        o.hub, Position(*ORDERS, 8)
    ),
    explain_topic.explain_topic: lambda o: explain_topic.explain_topic(o.hub, "orders"),
    group_changes.plan_seek: lambda o: group_changes.plan_seek(o.hub, "billing", "earliest"),
    group_changes.seek: lambda o: group_changes.seek(o.hub, "billing", "earliest"),
    group_changes.plan_skip: lambda o: group_changes.plan_skip(
        o.hub, "billing", f"{ORDERS}@8", "a test"
    ),
    group_changes.skip: lambda o: group_changes.skip(o.hub, "billing", f"{ORDERS}@8", "a test"),
    group_changes.plan_delete: lambda o: group_changes.plan_delete(o.hub, "billing"),
    group_changes.delete: lambda o: group_changes.delete(o.hub, "billing"),
    stuck.silent_owner: lambda o: [
        stuck.silent_owner(o.hub, group, stream)
        for group in [show_group(o.hub.backend, "billing")]
        for stream in group.partitions
    ],
    serve_metrics: lambda o: serve_metrics(o.hub, 0).close(),
    hub_info.hub_info: lambda o: hub_info.hub_info(o.hub),
    hub_info.accept_gaps: lambda o: hub_info.accept_gaps(o.hub),
    explain_pipeline.explain_pipeline: lambda o: explain_pipeline.explain_pipeline(o.hub, "lake"),
    explain_writer.explain_writer: lambda o: explain_writer.explain_writer(o.hub, "lake/crm"),
    interventions.ack: lambda o: interventions.ack(
        _failing(o).hub, "lake/crm", f"{LOG}@25", "a test"
    ),
    interventions.retry: lambda o: interventions.retry(_failing(o).hub, "lake/crm"),
    interventions.retry_one_at_a_time: lambda o: interventions.retry_one_at_a_time(
        _failing(o).hub, "lake/crm"
    ),
    commit_log.read_log: lambda o: list(
        commit_log.read_log(o.hub, "lake", "earliest", "latest", None)
    ),
    lookup.find_pipeline: lambda o: lookup.find_pipeline(o.hub, "lake"),
    lookup.find_writer: lambda o: lookup.find_writer(o.hub, "lake/crm"),
    lookup.writer_names: lambda o: lookup.writer_names(o.hub),
    lookup.runner: lambda o: lookup.runner(o.hub, "lake"),
    lookup.commit_log: lambda o: lookup.commit_log(o.hub, lookup.find_pipeline(o.hub, "lake")),
    lookup.dead_letter_topic: lambda o: lookup.dead_letter_topic(
        o.hub, lookup.find_pipeline(o.hub, "lake")
    ),
    lookup.read_ledger: lambda o: o.ledger(),
    namespaces.namespace_offsets: lambda o: namespaces.namespace_offsets(o.hub, "lake"),
    trial.try_pipeline: lambda o: trial.try_pipeline(o.pipeline().definition, o.hub),
    describe.view_pipelines: lambda o: describe.view_pipelines(o.hub),
    describe.view_pipeline: lambda o: describe.view_pipeline(
        o.hub, lookup.find_pipeline(o.hub, "lake")
    ),
    describe.view_writer: lambda o: describe.view_writer(
        o.hub, lookup.find_writer(o.hub, "lake/crm")
    ),
    rewind.plan_rewind: lambda o: rewind.plan_rewind(o.hub, "lake/crm", f"{LOG}@2"),
    rewind.rewind: lambda o: rewind.rewind(o.hub, "lake/crm", f"{LOG}@2"),
    forget.plan_forget: lambda o: forget.plan_forget(o.hub, "lake/crm"),
    forget.forget: lambda o: forget.forget(o.hub, "lake/crm"),
    status.status: lambda o: status.status(o.hub),
    segments.partitions_in: lambda o: list(segments.partitions_in(o.hub, None)),
    storage_use.segments_in: lambda o: storage_use.segments_in(o.hub, ORDERS),
    changes.plan_scale: lambda o: changes.plan_scale(o.hub, "orders", 4, any_count=False),
    changes.scale: lambda o: changes.scale(o.hub, "orders", 4, any_count=False),
    changes.plan_add_storage: lambda o: changes.plan_add_storage(
        o.hub, "orders", 4, any_count=False
    ),
    changes.add_storage: lambda o: changes.add_storage(o.hub, "orders", 4, any_count=False),
    changes.plan_switch: lambda o: changes.plan_switch(o.hub, "orders"),
    changes.switch: lambda o: (
        changes.add_storage(o.hub, "orders", 4, any_count=False),
        changes.switch(o.hub, "orders"),
    ),
    changes.plan_trim: lambda o: changes.plan_trim(o.hub, "orders", 0, force=False),
    changes.trim: lambda o: (
        changes.scale(o.hub, "orders", 4, any_count=False),
        changes.trim(o.hub, "orders", 1, force=True),
    ),
    push.check_may_push: lambda o: push.check_may_push(o.hub, "orders"),
    changes.plan_delete: lambda o: changes.plan_delete(o.hub, "orders"),
    changes.delete: lambda o: changes.delete(o.hub, "orders"),
    explain_partition.explain_partition: lambda o: explain_partition.explain_partition(
        o.hub, ORDERS
    ),
    tail.open_range: lambda o: tail.open_range(
        o.hub, "orders", parse_offset_spec("earliest"), None
    ),
    create.create_topic: lambda o: create.create_topic(
        o.hub, "users", partitions=1, router=RouterKind.SHARD_CONSISTENT,
        kind=create.ValueKind.JSON, order_by=None, any_count=False, exist_ok=False,
    ),
    find_topic: lambda o: find_topic(o.hub, "orders"),
    topics.list_topics: lambda o: topics.list_topics(o.hub),
    topics.show_topic: lambda o: topics.show_topic(o.hub, "orders"),
    topics.route_keys: lambda o: topics.route_keys(o.hub, "orders", ("c7",)),
    topics.summarize: lambda o: topics.summarize(o.hub, find_topic(o.hub, "orders")),
    topics.topic_amount: lambda o: topics.topic_amount(o.hub, find_topic(o.hub, "orders")),
    **QUEUES,
    **SOURCES,
    **SUBSCRIPTIONS,
}  # fmt: skip

NOT_SUPPORTED: Final[dict[Callable[..., Any], tuple[Call, str]]] = {
    compaction.plan_compaction: (
        lambda o: compaction.plan_compaction(o.hub, None),
        "compact segments",
    ),
    compaction.compact: (lambda o: compaction.compact(o.hub, None), "compact segments"),
    segments.list_segments: (lambda o: segments.list_segments(o.hub, None), "list segments"),
    segments.show_segment: (
        lambda o: segments.show_segment(o.hub, ORDERS, None),
        "show a segment",
    ),
    segments.verify: (lambda o: segments.verify(o.hub, None), "verify segments"),
}


def _operations() -> set[Callable[..., Any]]:
    """Return all public functions of `tailrace.operations` with a hub parameter."""
    found: set[Callable[..., Any]] = set()
    for module in pkgutil.walk_packages(operations.__path__, f"{operations.__name__}."):
        for name, value in vars(import_module(module.name)).items():
            if (
                inspect.isfunction(value)
                and value.__module__ == module.name
                and not name.startswith("_")
                and any(re.search(r"\bHub\b", str(each)) for each in value.__annotations__.values())
            ):
                found.add(value)
    return found


def _name(case: object) -> str:
    return getattr(case, "__qualname__", "call")


def test_every_operation_is_listed_here() -> None:
    assert WORKS.keys() | NOT_SUPPORTED.keys() == _operations()
    assert not WORKS.keys() & NOT_SUPPORTED.keys()


@pytest.mark.parametrize(("_operation", "call"), WORKS.items(), ids=_name)
def test_an_operation_works_on_a_backend_in_memory(
    _operation: Callable[..., Any], call: Call, operator: Lake
) -> None:
    call(operator)


@pytest.mark.parametrize("operation", NOT_SUPPORTED, ids=_name)
def test_an_operation_that_a_backend_cannot_do_names_both(
    operation: Callable[..., Any], operator: Lake
) -> None:
    call, named = NOT_SUPPORTED[operation]
    with pytest.raises(NotSupported, match=f"hub 'memory' cannot {named}"):
        call(operator)


def test_the_counts_of_a_hub_in_memory_are_exact(operator: Lake) -> None:
    info = hub_info.hub_info(operator.hub)
    (orders,) = [each for each in topics.list_topics(operator.hub) if each.name == "orders"]
    assert orders.messages == 10
    assert orders.bytes > 10
    assert info.messages >= 26
    assert (info.hub_id, info.sync, info.disk_percent) == (None, None, None)
    assert status.status(operator.hub).hub == info
