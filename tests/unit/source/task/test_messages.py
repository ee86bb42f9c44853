"""Messages of the sync topic, whole and in parts."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.source.task.messages import (
    MessageParts,
    MessageType,
    OwnedUnits,
    SharedUnits,
    SyncMessage,
    TaskState,
    encode,
)
from tailrace.source.unit_status import UnitStatus

NOW = datetime(2026, 11, 19, tzinfo=UTC)
UNITS = st.text(min_size=1, max_size=30)
STATES = st.lists(
    st.builds(
        lambda owned, shared: (OwnedUnits(owned), SharedUnits(shared)),
        st.dictionaries(UNITS, st.sampled_from(UnitStatus), max_size=20),
        st.dictionaries(UNITS, st.just("another task"), max_size=20),
    ),
    min_size=1,
    max_size=5,
)


def message(*states: tuple[OwnedUnits, SharedUnits]) -> SyncMessage:
    return SyncMessage(
        sync_epoch="e",
        task_id="t0",
        message_timestamp=NOW,
        connector_state=tuple(
            TaskState(f"t{number}", NOW, 1, data, share)
            for number, (data, share) in enumerate(states)
        ),
        type=MessageType.NEW_EPOCH,
        generation=1,
        epoch_number=7,
        sequence=1,
    )


def joined(values: list[bytes]) -> SyncMessage:
    parts = MessageParts()
    found = [parts.add(value) for value in values]
    assert found[:-1] == [None] * (len(values) - 1)
    assert found[-1] is not None
    return msgspec.structs.replace(found[-1], part=1, parts=1)


@given(STATES, st.integers(600, 3000))
def test_parts_are_within_the_limit_and_make_the_message_again(
    states: list[tuple[OwnedUnits, SharedUnits]], bytes_max: int
) -> None:
    whole = message(*states)
    values = encode(whole, bytes_max)
    assert max(map(len, values)) <= bytes_max
    assert joined(values) == whole


def test_a_message_that_fits_exactly_is_not_divided() -> None:
    whole = message((OwnedUnits({"a": UnitStatus.READ}), SharedUnits()))
    [value] = encode(whole, 10_000)
    assert encode(whole, len(value)) == [value]


@pytest.mark.parametrize("bytes_max", [1, 100, 1024])
def test_below_the_size_of_one_unit_each_part_has_one(bytes_max: int) -> None:
    owned = {f"{number}" * 700: UnitStatus.READING for number in range(3)}
    whole = message((OwnedUnits(owned), SharedUnits({"x" * 700: "t1"})))
    values = encode(whole, bytes_max)
    assert len(values) == 4
    assert joined(values) == whole


def test_messages_of_others_may_come_between_the_parts_of_one() -> None:
    owned = {f"unit {number}": UnitStatus.READING for number in range(100)}
    divided = message((OwnedUnits(owned), SharedUnits()))
    first, *rest = encode(divided, 1000)
    other = msgspec.structs.replace(message((OwnedUnits(), SharedUnits())), task_id="other")
    [between] = encode(other, 1000)
    parts = MessageParts()
    assert [parts.add(first), parts.add(between)] == [None, other]
    found = [parts.add(value) for value in rest][-1]
    assert found is not None
    assert found.connector_state == divided.connector_state


def test_parts_without_their_first_one_make_no_message() -> None:
    owned = {f"unit {number}": UnitStatus.READING for number in range(100)}
    _, *rest = encode(message((OwnedUnits(owned), SharedUnits())), 1000)
    parts = MessageParts()
    assert [parts.add(value) for value in rest] == [None] * len(rest)
