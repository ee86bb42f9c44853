"""Creation, end and cancellation of replays.

A replay is a subscription of the queue's topic with fixed bounds, so that its ledgers, retries and
fences are those of any subscription. One store commit creates it together with the entry of the
job. Its end is found by anybody who looks at it: first the entry is changed, and then the
subscription is deleted. Whoever looks after an interruption in between does the rest.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import replace
from typing import NamedTuple

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change
from tailrace.backend.retry import retry_on_conflict
from tailrace.delivery.load_control import UNLIMITED
from tailrace.delivery.retry import Retry
from tailrace.errors import (
    Conflict,
    InvalidValue,
    NotRetained,
    ReadOnlyHub,
    UnknownSubscription,
    UnknownTopic,
)
from tailrace.queue.lifecycle import read_queue
from tailrace.queue.replay.job import (
    ReplayJob,
    ReplayState,
    StoredReplay,
    check_id,
    outlived,
    read_replay,
    stored_replays,
)
from tailrace.queue.replay.progress import ReplayProgress, ended_progress, read_progress
from tailrace.subscription.shard.replay_bounds import ReplayBounds
from tailrace.subscription.store.definition import NewSubscription, find_subscription
from tailrace.subscription.store.lifecycle import create_subscription, delete_subscription
from tailrace.subscription.store.names import own_fence, worker_group
from tailrace.topic.consumers import unregister
from tailrace.topic.record_count import amount_within
from tailrace.topic.time_range import offsets_between
from tailrace.topic.view import View, find


class NewReplay(NamedTuple):
    """A replay to create: of ``[start_ms, end_ms)``, asked for by `by`. Without an `id` it gets a
    random one."""

    start_ms: int
    end_ms: int
    has_handler: bool
    by: str
    id: str | None = None


def create_replay(backend: Backend, queue: str, new: NewReplay, now_ms: int) -> StoredReplay:
    """Create a replay of a queue.

    A range without messages gives one that is done. Raises `InvalidValue` if the range ends before
    it starts or the id is in use, and `NotRetained` if messages of the range were removed.
    """
    definition = read_queue(backend, queue)
    id = secrets.token_hex(4) if new.id is None else check_id(queue, new.id)
    for each in outlived(stored_replays(backend, queue)):
        _forget(backend, each)
    if any(each.id == id for each in stored_replays(backend, queue)):
        raise InvalidValue("id", id, f"an id that no replay of queue {queue!r} has")
    bounds, records = _resolve(backend, queue, new)
    job = ReplayJob(new.start_ms, new.end_ms, new.by, now_ms, new.has_handler, records)
    if not records:
        return _create_ended(backend, queue, id, job, now_ms)
    stored = StoredReplay(queue, id, job, 0)
    wanted = NewSubscription(
        queue,
        # A copy fails only if its process ends, which must not use up its attempts.
        definition.retry if new.has_handler else Retry(None, first="100ms", max="1s"),
        definition.policy,
        filter=definition.filter,
        replay=bounds,
        load=UNLIMITED,
    )
    entries = {stored.key: msgspec.json.encode(job)}
    create_subscription(backend, stored.subscription, wanted, now_ms=now_ms, entries=entries)
    try:
        _resolve(
            backend, queue, new
        )  # what was removed before the replay was registered as a consumer
    except NotRetained:
        _remove(backend, queue, id, now_ms)
        raise
    return read_replay(backend, queue, id)


def peek_at(backend: Backend, queue: str, id: str) -> ReplayProgress:
    """Return the progress of a replay, and change nothing. Raises `UnknownReplay`."""
    return _progress(backend, read_replay(backend, queue, id))


def look_at(backend: Backend, queue: str, id: str, now_ms: int) -> ReplayProgress:
    """Return the progress of a replay, and end it if it is done. Raises `UnknownReplay`.

    A replay with dead letters keeps its subscription until they are redelivered or discarded.
    """

    def attempt() -> ReplayProgress:
        replay = read_replay(backend, queue, id)
        progress = _progress(backend, replay)
        if progress.state is not ReplayState.RUNNING:
            with contextlib.suppress(ReadOnlyHub):  # another process does it
                _end(backend, replay, progress, now_ms)
        return progress

    return retry_on_conflict(attempt, f"replay {id!r} of queue {queue!r}")


def cancel_replay(backend: Backend, queue: str, id: str, now_ms: int) -> bool:
    """Cancel a replay: what it has done stays done. False if it has ended, with nothing changed,
    unless it has dead letters: those are dropped. Raises `UnknownReplay`."""

    def attempt() -> bool:
        replay = read_replay(backend, queue, id)
        progress = _progress(backend, replay)
        cancelled = progress.state is ReplayState.RUNNING
        state = ReplayState.CANCELLED if cancelled else progress.state
        if state is not replay.job.state or progress.dead:
            left = ReplayProgress(state, progress.done, discarded=progress.discarded)
            _end(backend, replay, left, now_ms)
        return cancelled

    return retry_on_conflict(attempt, f"replay {id!r} of queue {queue!r}")


def delete_replays(backend: Backend, queue: str, now_ms: int) -> None:
    """Remove all replays of a queue with their dead letters."""
    for each in stored_replays(backend, queue):
        _remove(backend, queue, each.id, now_ms)


def _resolve(backend: Backend, queue: str, new: NewReplay) -> tuple[ReplayBounds, int]:
    """Return the bounds of a replay, and the number of records within them."""
    stored = find(backend, queue)
    if stored is None:
        raise UnknownTopic(queue, backend.name)
    view = View(backend, queue, stored)
    spans = offsets_between(view, new.start_ms, new.end_ms)
    opened = view.definition.pointer + 1  # as `offsets_between` has read it
    amounts = (amount_within(backend.log, where, [span]) for where, span in spans.items())
    records = sum(each.records for each in amounts)
    return ReplayBounds.of(new.start_ms, new.end_ms, opened, spans), records


def _create_ended(
    backend: Backend, queue: str, id: str, job: ReplayJob, now_ms: int
) -> StoredReplay:
    """Store a replay of nothing, which is done at once."""
    done = msgspec.structs.replace(job, state=ReplayState.DONE, ended_ms=now_ms)
    key = StoredReplay(queue, id, done, 0).key
    backend.store.commit(Change({key: 0}, {key: msgspec.json.encode(done)}))
    return read_replay(backend, queue, id)


def _progress(backend: Backend, replay: StoredReplay) -> ReplayProgress:
    """Return the progress of a replay: counted, or as it was at its end.

    One that runs and has no subscription has ended since its entry was read. If the entry is still
    the same, somebody has deleted the subscription, or the topic.
    """
    with contextlib.suppress(UnknownTopic):
        stored = find_subscription(backend, replay.subscription)
        bounds = None if stored is None else stored.definition.replay
        if stored is not None and bounds and replay.job.state is not ReplayState.CANCELLED:
            return read_progress(backend, stored, bounds)
    progress = ended_progress(replay.job)
    if progress.state is ReplayState.RUNNING:
        return replace(progress, state=ReplayState.CANCELLED)
    return progress


def _end(backend: Backend, replay: StoredReplay, progress: ReplayProgress, now_ms: int) -> None:
    """Record the end of a replay, and delete its subscription unless it has dead letters."""
    job = replay.job
    ended_ms = now_ms if job.ended_ms is None else job.ended_ms
    ended = msgspec.structs.replace(
        job, state=progress.state, ended_ms=ended_ms, counts=progress.counts
    )
    if ended != job:
        change = Change({replay.key: replay.version}, {replay.key: msgspec.json.encode(ended)})
        backend.store.commit(change)
    with contextlib.suppress(UnknownSubscription):  # another process was faster
        if not progress.dead:
            delete_subscription(backend, replay.subscription)
        elif ended != job:  # dead letters are in DLQ, so compaction need not wait for them
            unregister(backend.store, replay.queue, worker_group(replay.subscription))


def _remove(backend: Backend, queue: str, id: str, now_ms: int) -> None:
    """Cancel a replay and forget it."""
    cancel_replay(backend, queue, id, now_ms)
    _forget(backend, read_replay(backend, queue, id))


def _forget(backend: Backend, replay: StoredReplay) -> None:
    """Remove what is stored about a replay that has ended."""
    with contextlib.suppress(UnknownSubscription):  # if a deletion was interrupted
        delete_subscription(backend, replay.subscription)
    gone = (replay.key, FENCES + own_fence(replay.subscription))
    with contextlib.suppress(Conflict):  # another process was faster
        backend.store.commit(Change({replay.key: replay.version}, dict.fromkeys(gone)))
