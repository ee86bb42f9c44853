"""The store entry of a replay, ``queue-replay/QUEUE/ID``: what it replays, and how far it came.

The entry is written in the commit that creates the subscription which does the work, and outlives
it. The newest `ENDED_MAX` replays of a queue that have ended are kept.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Backend, Entry
from tailrace.errors import InvalidName, UnknownReplay
from tailrace.subscription.store.names import replay_subscription
from tailrace.topic.composite import check_name, check_new_name

REPLAYS: Final = "queue-replay/"
"""Store entries under this prefix are replays, after the queue and a slash."""

ENDED_MAX: Final = 100
"""The number of replays of a queue that have ended and are still listed."""


class ReplayState(Enum):
    """What became of a replay."""

    RUNNING = "running"
    """It has messages left. It goes on whenever a process works on it."""
    DONE = "done"
    """Every message was handled or pushed again, or is a dead letter of the replay."""
    CANCELLED = "cancelled"


class ReplayCounts(msgspec.Struct, frozen=True):
    """Numbers of messages of a replay: `done`, in DLQ (`dead`), and `discarded` from there."""

    done: int = 0
    dead: int = 0
    discarded: int = 0


class ReplayJob(msgspec.Struct, frozen=True):
    """A replay without its name: the range ``[start_ms, end_ms)``, who asked for it and when.

    `has_handler` is False if its messages are pushed again to the queue. `records` is the number of
    stored records that are read to find those of the range. `counts` are those at its end.
    """

    start_ms: int
    end_ms: int
    by: str
    created_ms: int
    has_handler: bool
    records: int
    state: ReplayState = ReplayState.RUNNING
    ended_ms: int | None = None
    counts: ReplayCounts = ReplayCounts()


class StoredReplay(NamedTuple):
    """A replay of a queue, and the version of its store entry."""

    queue: str
    id: str
    job: ReplayJob
    version: int

    @property
    def subscription(self) -> str:
        """The name of the subscription that does the work."""
        return replay_subscription(self.queue, self.id)

    @property
    def key(self) -> str:
        """The key of its store entry."""
        return replay_key(self.queue, self.id)


_decode = msgspec.json.Decoder(ReplayJob).decode


def check_id(queue: str, id: object) -> str:
    """Return the id if a new replay of the queue may have it; else `InvalidName`."""
    checked = check_new_name("replay", id)
    if "." in checked:
        raise InvalidName("replay", id, "names without a dot")
    try:
        check_name("subscription", replay_subscription(queue, checked))
    except InvalidName:
        raise InvalidName("replay", id, f"shorter names, for queue {queue!r}") from None
    return checked


def replay_key(queue: str, id: str) -> str:
    """Return the key of the store entry of a replay."""
    return f"{REPLAYS}{queue}/{id}"


def read_replay(backend: Backend, queue: str, id: str) -> StoredReplay:
    """Return a replay. Raises `UnknownReplay`."""
    entry = backend.store.get(replay_key(queue, id))
    if entry is None or entry.value is None:
        known = [each.id for each in stored_replays(backend, queue)]
        raise UnknownReplay(queue, id, backend.name, known)
    return _stored(queue, entry)


def stored_replays(backend: Backend, queue: str) -> list[StoredReplay]:
    """Return the replays of a queue, the oldest first."""
    found = [_stored(queue, entry) for entry in backend.store.scan(replay_key(queue, ""))]
    return sorted(found, key=lambda each: (each.job.created_ms, each.id))


def outlived(replays: list[StoredReplay]) -> list[StoredReplay]:
    """Return the replays, of those of a queue from the oldest, that are not to be kept."""
    ended = [each for each in replays if each.job.state is not ReplayState.RUNNING]
    gone = [each for each in ended if not each.job.counts.dead]
    return gone[: max(0, len(ended) - ENDED_MAX)]


def _stored(queue: str, entry: Entry) -> StoredReplay:
    id = entry.key.removeprefix(replay_key(queue, ""))
    return StoredReplay(queue, id, _decode(entry.value or b""), entry.version)
