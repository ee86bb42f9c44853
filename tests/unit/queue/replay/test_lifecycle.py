"""A replay is a stored job: created once, ended by whoever looks at it, cancelled, forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tailrace import Hub, InvalidName, InvalidValue, NotRetained, Partition, ReplayState
from tailrace.backend.contract import Backend, Change
from tailrace.queue.replay import job as jobs
from tailrace.queue.replay.job import read_replay, stored_replays
from tailrace.queue.replay.lifecycle import (
    NewReplay,
    cancel_replay,
    create_replay,
    look_at,
    peek_at,
)
from tailrace.subscription.store.definition import find_definition, find_subscription
from tailrace.subscription.store.names import SUBSCRIPTIONS
from tailrace.testing import MemoryBackend
from tests.support.replays import at, make_queue, push_batch, push_minutes
from tests.support.waiting import until

NOW_MS = at(10_000)


def create(hub: Hub, first: int, after: int, id: str | None = None, handler: bool = True) -> str:
    """Create a replay of the minutes from `first` up to, not including, `after`."""
    new = NewReplay(at(first), at(after), handler, "ada@host", id)
    return create_replay(hub.backend, "jobs", new, NOW_MS).id


def state(backend: Backend, id: str) -> ReplayState:
    """Look at a replay, and return its state."""
    return look_at(backend, "jobs", id, NOW_MS).state


def run(hub: Hub, id: str, handler: Callable[[Any], object]) -> None:
    """Work on a replay until nothing of it is left, without recording its end."""
    with hub.subscription(f"tailrace.replay.jobs.{id}").start(handler):
        until(lambda: peek_at(hub.backend, "jobs", id).state is ReplayState.DONE)


def test_a_replay_reads_no_message_outside_of_its_range() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(40))
    create(hub, 10, 20, "one")
    stored = find_subscription(hub.backend, "tailrace.replay.jobs.one")
    assert stored is not None
    assert stored.definition.replay is not None
    assert read_replay(hub.backend, "jobs", "one").job.records == 10
    seen: list[int] = []
    run(hub, "one", lambda each: seen.append(each.value))
    assert sorted(seen) == list(range(10, 20))


def test_a_message_of_the_range_that_is_pushed_after_the_call_is_not_replayed() -> None:
    hub, queue = make_queue(shards=1)
    push_minutes(queue, range(10, 20))
    id = create(hub, 10, 20)
    queue.push(-1, key="late", timestamp=at(15))
    seen: list[int] = []
    run(hub, id, lambda each: seen.append(each.value))
    assert sorted(seen) == list(range(10, 20))


def test_messages_of_other_times_in_the_same_batches_are_passed_over() -> None:
    hub, queue = make_queue()
    push_batch(queue, range(40))
    id = create(hub, 10, 20)
    assert read_replay(hub.backend, "jobs", id).job.records == 40
    seen: list[int] = []
    run(hub, id, lambda each: seen.append(each.value))
    assert sorted(seen) == list(range(10, 20))
    assert look_at(hub.backend, "jobs", id, NOW_MS).total == 10


def test_a_replay_is_no_subscription_that_users_see_or_create() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(4))
    create(hub, 0, 4, "one")
    assert hub.subscriptions() == hub.queues() == ["jobs"]
    with pytest.raises(InvalidName, match="reserves"):
        hub.create_subscription("tailrace.replay.jobs.two", topic="jobs")


@pytest.mark.parametrize("id", ["a.b", "-x", "a/b", "x" * 190])
def test_an_id_that_cannot_be_part_of_a_name_is_refused(id: str) -> None:
    hub, _ = make_queue()
    with pytest.raises(InvalidName, match="replay"):
        create(hub, 0, 1, id)


def test_an_id_is_used_once() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(4))
    create(hub, 0, 4, "one")
    with pytest.raises(InvalidValue, match="no replay of queue 'jobs' has"):
        create(hub, 0, 4, "one")


def test_a_range_without_messages_is_done_at_once_and_has_no_subscription() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(4))
    for first, after in ((2, 2), (100, 200)):
        id = create(hub, first, after)
        assert state(hub.backend, id) is ReplayState.DONE
        assert find_definition(hub.backend, f"tailrace.replay.jobs.{id}") is None


def test_a_range_that_starts_after_its_end_is_refused() -> None:
    hub, _ = make_queue()
    with pytest.raises(InvalidValue, match="start"):
        create(hub, 2, 1)


def test_a_range_that_is_not_retained_is_refused_and_nothing_is_created() -> None:
    backend = MemoryBackend()
    hub, queue = make_queue(shards=1, backend=backend)
    push_minutes(queue, range(10))
    backend.log.remove_before(Partition("jobs", 0, 0), 5)
    with pytest.raises(NotRetained, match="retained"):
        create(hub, 2, 8)
    assert stored_replays(backend, "jobs") == []
    create(hub, 5, 8)


def test_the_end_is_recorded_by_the_first_who_looks_and_the_rest_by_the_next() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(8))
    id = create(hub, 0, 8)
    assert state(hub.backend, id) is ReplayState.RUNNING
    run(hub, id, lambda _: None)
    replay = read_replay(hub.backend, "jobs", id)
    assert replay.job.state is ReplayState.RUNNING, "nobody has looked yet"
    # As if the first one had been killed between its two commits.
    done = msgspec.structs.replace(replay.job, state=ReplayState.DONE)
    hub.backend.store.commit(Change(writes={replay.key: msgspec.json.encode(done)}))
    assert find_definition(hub.backend, replay.subscription) is not None
    assert state(hub.backend, id) is ReplayState.DONE
    assert find_definition(hub.backend, replay.subscription) is None
    assert state(hub.backend, id) is ReplayState.DONE
    assert look_at(hub.backend, "jobs", id, NOW_MS).done == 8


def test_a_cancelled_replay_leaves_nothing_but_its_entry() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(8))
    before = {entry.key for entry in hub.backend.store.scan("")}
    id = create(hub, 0, 8)
    assert cancel_replay(hub.backend, "jobs", id, NOW_MS)
    assert not cancel_replay(hub.backend, "jobs", id, NOW_MS)
    assert state(hub.backend, id) is ReplayState.CANCELLED
    after = {entry.key for entry in hub.backend.store.scan("")}
    assert after - before == {
        f"queue-replay/jobs/{id}",
        f"fence/subscription/tailrace.replay.jobs.{id}",
    }


def test_a_replay_whose_subscription_somebody_deleted_is_cancelled() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(8))
    id = create(hub, 0, 8)
    hub.subscription(f"tailrace.replay.jobs.{id}").delete()
    assert state(hub.backend, id) is ReplayState.CANCELLED


def test_a_queue_is_deleted_with_its_replays() -> None:
    hub, queue = make_queue()
    push_minutes(queue, range(8))
    create(hub, 0, 8)
    create(hub, 3, 3)
    hub.delete_queue("jobs")
    assert hub.backend.store.scan("queue-replay/") == []
    assert hub.backend.store.scan(SUBSCRIPTIONS) == []
    assert [name for name in hub.topics() if "jobs" in name] == []


def test_the_oldest_replays_that_have_ended_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "ENDED_MAX", 2)
    hub, queue = make_queue()
    push_minutes(queue, range(8))
    running = create(hub, 0, 8, "a")
    for id in "bcde":
        create(hub, 1, 1, id)
    assert [each.id for each in stored_replays(hub.backend, "jobs")] == [running, "c", "d", "e"]


def test_a_replay_reads_the_storage_topics_it_was_created_over_and_no_later_one() -> None:
    hub, queue = make_queue(shards=4)
    push_minutes(queue, range(20))
    queue.topic.scale(8)
    push_minutes(queue, range(20, 40))
    id = create(hub, 10, 100)
    queue.topic.scale(16)
    push_minutes(queue, range(40, 60))
    seen: list[int] = []
    run(hub, id, lambda each: seen.append(each.value))
    assert sorted(seen) == list(range(10, 40))
    for key in range(5):
        of_key = [each for each in seen if each % 5 == key]
        assert of_key == sorted(of_key)
