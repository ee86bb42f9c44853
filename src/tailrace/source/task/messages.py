"""The messages of the sync topic, by which the tasks of a source tell each other their states.

`docs/source-tasks.md` has their JSON schema. A message that would be too large for the topic is
divided into numbered parts, which are appended together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import Enum
from typing import Final

import msgspec

from tailrace.source.unit_status import UnitStatus

_NUMBER_MAX: Final = 10**9
"""More than the number of parts of any message."""


class MessageType(Enum):
    """The kinds of messages."""

    REGULAR = "regular"
    """The state of the sender has changed."""
    REBALANCE_ANSWER = "rebalance_answer"
    """The state of the sender, in answer to a rebalance event of this generation."""
    NEW_EPOCH = "new_epoch"
    """The states of all members, with which an epoch begins."""
    UPDATE_EPOCH = "update_epoch"
    """The states of all members again, for tasks that read the topic from here on."""


class OwnedUnits(msgspec.Struct, frozen=True):
    """The units that a task owns, and what is left to do in each."""

    units: dict[str, UnitStatus] = {}


class SharedUnits(msgspec.Struct, frozen=True):
    """The units that a task gives away, each with the task that is to take it."""

    units: dict[str, str] = {}


class TaskState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one task. A later state of a task has a higher `sequence`."""

    task_id: str = msgspec.field(name="taskID")
    state_timestamp: datetime
    sequence: int
    data: OwnedUnits = OwnedUnits()
    share: SharedUnits = SharedUnits()


class SyncMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message of the sync topic.

    `epoch_number` is the version of the store entry of the epoch, which owners of units expect.
    `sequence` numbers the messages of a sender. `part` of `parts` is from 1.
    """

    sync_epoch: str
    task_id: str = msgspec.field(name="taskID")
    message_timestamp: datetime
    connector_state: tuple[TaskState, ...]
    type: MessageType
    generation: int
    epoch_number: int
    sequence: int
    part: int = 1
    parts: int = 1


class RebalanceEvent(msgspec.Struct, frozen=True):
    """A message of the heartbeat topic: the members of the source have changed."""

    generation: int
    members: tuple[str, ...]
    leader: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SyncMessage).decode
_decode_event = msgspec.json.Decoder(RebalanceEvent).decode


def encode(message: SyncMessage, bytes_max: int) -> list[bytes]:
    """Return a message as one value of the topic, or as its parts, none above `bytes_max`.

    A part has at least one unit, however small `bytes_max` is.
    """
    whole = _encode(message)
    if len(whole) <= bytes_max:
        return [whole]
    empty = _part(message, (), _NUMBER_MAX, _NUMBER_MAX)
    states = list(_divided(message.connector_state, bytes_max - len(_encode(empty))))
    return [
        _encode(_part(message, part, number, len(states))) for number, part in enumerate(states, 1)
    ]


def _part(
    message: SyncMessage, states: tuple[TaskState, ...], number: int, parts: int
) -> SyncMessage:
    return msgspec.structs.replace(message, connector_state=states, part=number, parts=parts)


def _divided(states: Iterable[TaskState], bytes_max: int) -> Iterator[tuple[TaskState, ...]]:
    """Divide states so that each part has at most `bytes_max`, with the commas between them."""
    part: list[TaskState] = []
    size = 0
    for state in states:
        for piece in _pieces(state, bytes_max):
            bytes = len(_encode(piece)) + 1
            if part and size + bytes > bytes_max:
                yield tuple(part)
                part, size = [], 0
            part.append(piece)
            size += bytes
    yield tuple(part)


def _pieces(state: TaskState, bytes_max: int) -> Iterator[TaskState]:
    """Divide a state with many units; `joined` puts its pieces together."""
    owned, shared = list(state.data.units.items()), list(state.share.units.items())
    if len(_encode(state)) < bytes_max or len(owned) + len(shared) <= 1:
        yield state
        return
    half = (len(owned) + len(shared)) // 2
    other = max(0, half - len(owned))
    for data, share in ((owned[:half], shared[:other]), (owned[half:], shared[other:])):
        piece = msgspec.structs.replace(
            state, data=OwnedUnits(dict(data)), share=SharedUnits(dict(share))
        )
        yield from _pieces(piece, bytes_max)


class MessageParts:
    """Puts the parts of messages together, in the order of the topic. For one reader of it.

    Messages of other senders may come between the parts of one.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[SyncMessage]] = {}

    def add(self, value: bytes) -> SyncMessage | None:
        """Return the message that a value of the topic completes; None if it does not."""
        message = _decode(value)
        if message.parts == 1:
            return message
        parts = [] if message.part == 1 else self._parts.pop(message.task_id, [])
        parts.append(message)
        if len(parts) != message.part:
            return None  # its first parts are before the beginning of this reading
        if message.part < message.parts:
            self._parts[message.task_id] = parts
            return None
        states: dict[str, TaskState] = {}
        for part in parts:
            for state in part.connector_state:
                states[state.task_id] = _joined(states.get(state.task_id), state)
        return msgspec.structs.replace(message, connector_state=tuple(states.values()))


def _joined(one: TaskState | None, other: TaskState) -> TaskState:
    if one is None:
        return other
    return msgspec.structs.replace(
        one,
        data=OwnedUnits(one.data.units | other.data.units),
        share=SharedUnits(one.share.units | other.share.units),
    )


def encode_event(event: RebalanceEvent) -> bytes:
    """Return the value of the heartbeat topic for an event."""
    return _encode(event)


def decode_event(value: bytes) -> RebalanceEvent:
    """Return the event of a value of the heartbeat topic."""
    return _decode_event(value)
