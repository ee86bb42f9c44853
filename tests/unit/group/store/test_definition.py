"""Groups by name, the topics they match, creation and deletion."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change, TableKey, Transaction
from tailrace.delivery.handed_out import handed_out_key, handed_out_value, read_handed_out
from tailrace.errors import (
    Fenced,
    GroupExists,
    InvalidName,
    InvalidValue,
    UnknownGroup,
    UnknownTopic,
)
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.definition import (
    Shared,
    TopicFilter,
    find_group,
    group_names,
    parse_shared,
    read_group,
)
from tailrace.group.store.lifecycle import delete_group, open_group
from tailrace.group.store.presence import enter
from tailrace.group.store.seek_steps import SeekState, find_seek
from tailrace.group.store.start import StartLike, format_start, parse_start
from tailrace.group.store.streams import BasisReader, read_basis
from tailrace.hub.hub import Hub
from tailrace.message import Partition, Position
from tailrace.testing import ManualClock
from tailrace.topic.consumers import consumers
from tailrace.topic.offset_spec import AtTime, Extreme
from tests.support.groups import GROUP, ack, lead, marks, owner, states


@pytest.mark.parametrize(
    ("text", "topic", "matched"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "ordersxeu", False),
        ("*", "orders", True),
        ("*.eu", "orders.eu", True),
        ("a*b*c", "a1b2c", True),
        ("*", "tailrace.audit", False),
        ("tailrace.*", "tailrace.audit", False),
        ("tailrace.audit", "tailrace.audit", True),
    ],
)
def test_a_filter_matches(text: str, topic: str, matched: bool) -> None:
    assert TopicFilter(text).matches(topic) is matched


@pytest.mark.parametrize("text", ["", "a/b", ".x", "a b", "a+", "a#"])
def test_a_malformed_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"orders\.\*"):
        TopicFilter(text)


def test_group_and_filter_may_be_named_as_one() -> None:
    assert parse_shared("$shared/billing/orders.*") == Shared("billing", "orders.*")
    assert parse_shared("$queue/billing/orders") == Shared("billing", "orders")
    assert parse_shared("orders") is None
    for text in ("$shared/billing", "$other/billing/orders", "$queue/a/b/c", "$shared//orders/x"):
        with pytest.raises(InvalidValue, match=r"\$shared/GROUP/FILTER"):
            parse_shared(text)
    with pytest.raises(InvalidName):
        parse_shared("$shared//orders")


@pytest.mark.parametrize(
    ("written", "start", "text"),
    [
        ("earliest", Extreme.EARLIEST, "earliest"),
        ("latest", Extreme.LATEST, "latest"),
        (
            datetime(2026, 1, 1, tzinfo=UTC),
            AtTime(1_767_225_600_000),
            "@2026-01-01T00:00:00.000+00:00",
        ),
        ("@2026-01-01T00:00Z", AtTime(1_767_225_600_000), "@2026-01-01T00:00:00.000+00:00"),
        (Position("orders", 1, 7, 42), (Position("orders", 1, 7, 42),), "orders/1.7@42"),
        ("orders/1.7@42", (Position("orders", 1, 7, 42),), "orders/1.7@42"),
        (
            {"orders/1.7": 42, Partition("orders", 0, 1): 3},
            (Position("orders", 0, 1, 3), Position("orders", 1, 7, 42)),
            "orders/0.1@3 orders/1.7@42",
        ),
    ],
)
def test_a_start_may_be_written_in_several_forms(
    written: StartLike, start: object, text: str
) -> None:
    assert parse_start(written) == start
    assert format_start(parse_start(written)) == text
    assert parse_start(format_start(parse_start(written))) == start


@pytest.mark.parametrize(
    "written",
    [
        "",
        "tomorrow",
        "@soon",
        -1,
        3,
        True,
        {},
        {0: 3},
        {"orders/1.7": True},
        (),
        datetime(2026, 1, 1),
        "orders/1.7",
        1.5,
    ],
)
def test_a_malformed_start_is_refused(written: StartLike) -> None:
    with pytest.raises(InvalidValue) as error:
        parse_start(written, "to")
    assert (error.value.what, error.value.value) == ("to", written)


def test_a_number_is_not_taken_for_a_time_and_the_valid_forms_are_listed(hub: Hub) -> None:
    hub.create_topic("orders", partitions=1).push_many([(None, number) for number in range(5)])
    number: Any = 3
    forms = "'earliest', 'latest', an aware datetime, .* 'orders/1.7@42', or offsets by partition"
    with pytest.raises(InvalidValue, match=forms):
        hub.tail("orders", group=GROUP, start=number)
    with hub.tail("orders", group=GROUP, until="end") as consumer:
        assert len(list(consumer)) == 5
    with pytest.raises(InvalidValue, match=forms):
        hub.group(GROUP).seek(number)
    assert hub.group(GROUP).lag()[0].lag == 0


@pytest.mark.parametrize("topics", [None, 7, b"orders"])
def test_topics_that_are_not_strings_are_refused(hub: Hub, topics: Any) -> None:
    with pytest.raises(InvalidValue, match=r"topics is .* valid: a topic, or a pattern"):
        hub.tail(topics, group=GROUP)


def test_a_name_that_looks_like_an_option_creates_no_group(hub: Hub) -> None:
    hub.create_topic("orders")
    with pytest.raises(InvalidName, match=r"do not start with \. or -"):
        hub.tail("orders", group="-billing")
    assert hub.groups() == []


def test_a_group_is_created_once_and_then_opened(backend: Backend, hub: Hub) -> None:
    hub.create_topic("orders")
    made = open_group(backend, GROUP, "orders", "earliest", ManualClock(5))
    assert made.definition.created_ms == 5
    assert open_group(backend, GROUP, "orders", "latest", ManualClock(9)) == made
    assert read_group(backend, GROUP) == made
    assert group_names(backend) == [GROUP]
    assert consumers(backend.store, "orders") == ["group:billing"]


def test_a_group_of_other_topics_is_refused(backend: Backend, hub: Hub, clock: ManualClock) -> None:
    hub.create_topic("orders")
    open_group(backend, GROUP, "orders", "earliest", clock)
    with pytest.raises(GroupExists, match=r"'orders', not 'orders\.\*'"):
        open_group(backend, GROUP, "orders.*", "earliest", clock)


def test_a_new_group_of_an_unknown_topic_is_refused(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    hub.create_topic("orders")
    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        open_group(backend, GROUP, "order", "earliest", clock)
    assert find_group(backend, GROUP) is None


def test_an_unknown_group_is_named(backend: Backend, hub: Hub, clock: ManualClock) -> None:
    hub.create_topic("orders")
    open_group(backend, GROUP, "orders", "earliest", clock)
    with pytest.raises(UnknownGroup, match="did you mean 'billing'"):
        read_basis(backend, "biling")


def test_a_deleted_group_keeps_nothing_and_its_owners_write_no_more(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=2)
    orders.push_many([(str(i), i) for i in range(20)])
    open_group(backend, GROUP, "orders", "earliest", clock)
    fence = owner(backend, lead(backend), "orders/0.0")
    ack(backend, "orders/0.0", 0, 3, fence)
    backend.commit(
        Transaction(table={handed_out_key(GROUP, "orders/0.0"): handed_out_value(9)}, fence=fence)
    )
    enter(backend, GROUP, "s1", "p1", clock.now_ms())
    delete_group(backend, GROUP)
    with pytest.raises(Fenced):
        backend.commit(Transaction(fence=fence))
    assert find_group(backend, GROUP) is None
    assert backend.table.scan("ledger/group:billing") == []
    assert backend.table.scan("group-reach/billing") == []
    left = [e.key for e in backend.store.scan("") if "billing" in e.key]
    assert left == ["fence/group/billing"]
    with pytest.raises(UnknownGroup):
        delete_group(backend, GROUP)


def test_a_group_created_again_starts_anew(backend: Backend, hub: Hub, clock: ManualClock) -> None:
    orders = hub.create_topic("orders", partitions=1)
    orders.push_many([(None, i) for i in range(20)])
    first = open_group(backend, GROUP, "orders", "latest", clock)
    delete_group(backend, GROUP)
    second = open_group(backend, GROUP, "orders", "earliest", clock)
    assert second.definition.identity != first.definition.identity
    assert marks(backend, "orders/0.0") == [0]
    assert states(backend) == {"orders/0.0": UnitState.OPEN}


def test_leftovers_of_an_interrupted_deletion_do_not_affect_the_next_group(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=1)
    orders.push_many([(None, i) for i in range(20)])
    open_group(backend, GROUP, "orders", "latest", clock)
    fence = owner(backend, lead(backend), "orders/0.0")
    entries = {e.key: e.value for e in backend.store.scan("") if "/billing" in e.key}
    ledger = backend.table.scan("ledger/group:billing")
    assert len(entries) >= 6
    delete_group(backend, GROUP)
    # As if it had stopped after its first commit, with something that came between.
    left = {k: v for k, v in entries.items() if k not in ("group/billing", "fence/group/billing")}
    backend.store.commit(Change(writes=left))
    table = {TableKey("ledger/group:billing", key): value for key, value in ledger}
    backend.commit(Transaction(table=table))
    open_group(backend, GROUP, "orders", "earliest", clock)
    assert marks(backend, "orders/0.0") == [0]
    stored = find_seek(backend, GROUP, "orders")
    assert stored is not None
    assert stored.seek.state is SeekState.DONE
    assert stored.seek.number == 1
    assert lead(backend).grants == ()
    with pytest.raises(Fenced):
        backend.commit(Transaction(fence=fence))


def test_a_group_over_a_filter_has_the_units_of_all_that_match(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    for name in ("orders.eu", "orders.us", "returns"):
        hub.create_topic(name, partitions=2)
    open_group(backend, GROUP, "orders.*", "earliest", clock)
    wanted = {"orders.eu/0.0", "orders.eu/0.1", "orders.us/0.0", "orders.us/0.1"}
    assert states(backend) == dict.fromkeys(wanted, UnitState.OPEN)
    hub.delete_topic("orders.us")
    assert states(backend).keys() == {"orders.eu/0.0", "orders.eu/0.1"}


def test_a_topic_made_later_starts_at_0_although_the_group_began_at_the_latest(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    old = hub.create_topic("orders.eu", partitions=1)
    old.push(1)
    open_group(backend, GROUP, "orders.*", "latest", clock)
    new = hub.create_topic("orders.us", partitions=1)
    new.push_many([(None, i) for i in range(5)])
    assert states(backend)["orders.us/0.0"] is UnitState.WAITING
    BasisReader(backend, GROUP).read()
    assert states(backend)["orders.us/0.0"] is UnitState.OPEN
    assert marks(backend, "orders.eu/0.0", "orders.us/0.0") == [old.storage_topics[0].ends[0], 0]
    assert consumers(backend.store, "orders.us") == ["group:billing"]


def test_a_topic_that_was_deleted_and_made_again_starts_at_0_and_old_owners_are_fenced(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=1)
    orders.push_many([(None, i) for i in range(5)])
    open_group(backend, GROUP, "orders", "latest", clock)
    orders.scale(2)
    orders.push_many([(None, i) for i in range(5)])
    leader = lead(backend)
    fences = [owner(backend, leader, "orders/1.0"), owner(backend, leader, "orders/1.1")]
    ack(backend, "orders/1.1", 0, 2, fences[1])
    handed_out = handed_out_key(GROUP, "orders/1.0")
    backend.commit(Transaction(table={handed_out: handed_out_value(9)}, fence=fences[0]))
    hub.delete_topic("orders")
    again = hub.create_topic("orders", partitions=1)
    assert states(backend) == {"orders/0.0": UnitState.WAITING}
    BasisReader(backend, GROUP).read()
    assert states(backend) == {"orders/0.0": UnitState.OPEN}
    again.scale(2)
    assert marks(backend, "orders/0.0", "orders/1.0", "orders/1.1") == [0, 0, 0]
    assert read_handed_out(backend.table, GROUP, "orders/1.0") == 0
    for fence in fences:
        with pytest.raises(Fenced):
            backend.commit(Transaction(fence=fence))
