"""The steps of a change of the number of shards: any process takes them, and may die at any."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from operator import ne
from typing import Any

import pytest
from msgspec.structs import replace

from tailrace.backend.contract import FENCES, Change, Transaction
from tailrace.delivery.load_control import LoadChange
from tailrace.delivery.outcome import SUCCESS, CallOutcome, OutcomeKind
from tailrace.errors import Busy, Conflict, Fenced, InvalidValue
from tailrace.message import Range
from tailrace.subscription.layout.generation import ChangePhase
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import RequestAction, encode_request
from tailrace.subscription.store.generations import feeders, steps
from tailrace.subscription.store.generations.asking import ask_for_shards
from tailrace.subscription.store.generations.drained import deletion_of_drained
from tailrace.subscription.store.generations.opening import opening_of
from tailrace.subscription.store.generations.plan import plan_generation, plan_shards
from tailrace.subscription.store.generations.steps import advance, fence_shards, take_step
from tailrace.subscription.store.generations.waiting import next_generation, waited_for
from tailrace.subscription.store.lifecycle import delete_subscription, update_settings
from tailrace.subscription.store.names import own_fence
from tailrace.subscription.store.requests.entries import pending_requests, request_key
from tailrace.subscription.store.requests.making import Requester, put_requests
from tailrace.subscription.store.requests.selection import LetterSelection
from tailrace.subscription.store.takeover import read_takeover
from tailrace.testing import MemoryBackend
from tests.support.shards import FAILED, NAME, REJECTED, Shop, grant, stored

KEYS = range(24)
"""The keys are ``c0``, ``c1``, …; message 2 of key c3 has the value 302."""
UNKEYED = range(9000, 9020)
OPERATOR = Requester("ann@host", 7, "dlq redeliver")


def ask(shop: Shop, shards: int, *, uneven: bool = False) -> bool:
    return ask_for_shards(shop.backend, NAME, shards, uneven=uneven, by="ann", now_ms=1)


def change(shop: Shop, shards: int, *, uneven: bool = False) -> None:
    """Change the number of shards, with no worker running."""
    assert ask(shop, shards, uneven=uneven)
    advance(shop.backend, NAME)
    definition = stored(shop.backend).definition
    assert (definition.shards, definition.change) == (shards, None)


def push(shop: Shop, *numbers: int, keys: Iterable[int] = KEYS) -> None:
    """Push these messages of each key."""
    for key in keys:
        shop.push(f"c{key}", *(100 * key + number for number in numbers))


def numbers_of(values: Iterable[int], key: int) -> list[int]:
    """Return the numbers of the messages of a key among values."""
    return [value % 100 for value in values if value // 100 == key]


def run_all(shop: Shop, handler: Callable[[Any], Any]) -> list[Any]:
    """Let an owner of each shard work until there is nothing to do. Returns the values handled."""
    handled = []

    def handle(value: Any) -> Any:
        outcome = handler(value)
        if outcome not in (FAILED, REJECTED):
            handled.append(value)
        return outcome

    for shard in range(stored(shop.backend).definition.shards):
        shop.owner(shard).run_until_idle(handle)
    return handled


def test_a_change_without_workers_is_done_at_once() -> None:
    shop = Shop(partitions=12, shards=4)
    shop.push("a", 1)
    change(shop, 6)
    found = stored(shop.backend)
    assert (found.definition.generation, found.units[-1]) == (1, "1.5")
    assert len(found.rq.definition.storage) == 1
    advance(shop.backend, NAME)
    assert stored(shop.backend).version == found.version


def test_an_owner_of_an_ended_generation_writes_nothing() -> None:
    shop = Shop(partitions=12, shards=4)
    push(shop, 0)
    owner = shop.owner(0)
    assert owner.start_calls()
    change(shop, 6)
    for value in list(owner.in_flight):
        owner.finish(value)
    with pytest.raises(Fenced):
        owner.commit()


@pytest.mark.parametrize("counts", [(3, 6, 12, 1), (1, 12, 4), (6, 5, 4)])
def test_messages_in_all_queues_are_delivered_in_order_over_all_generations(
    counts: tuple[int, ...],
) -> None:
    shop = Shop(partitions=12, shards=4)
    push(shop, 0, 1)
    shop.push(None, *UNKEYED)
    fail_all(shop, parked={1, 5})
    for step, count in enumerate(counts):
        change(shop, count, uneven=True)
        push(shop, 2 + step)
    shop.now += 1000
    handled = run_all(shop, succeed)
    for key in set(KEYS) - {1, 5}:
        assert numbers_of(handled, key) == list(range(2 + len(counts)))
    assert len(handled) == 22 * (2 + len(counts)) + 20


def test_a_change_waits_until_the_storage_topics_that_disagree_are_finished() -> None:
    shop = Shop(partitions=4, shards=4)
    push(shop, 0)
    shop.topic.scale(12)
    push(shop, 1)
    assert ask(shop, 12)
    assert [each.messages for each in plan_waits(shop)] == [24]
    advance(shop.backend, NAME)
    assert stored(shop.backend).definition.phase is ChangePhase.ASKED
    with pytest.raises(Busy, match="already changes to 12 shards"):
        ask(shop, 6)
    first = run_all(shop, succeed)
    assert sorted(first) == [100 * key for key in KEYS]
    advance(shop.backend, NAME)
    assert stored(shop.backend).definition.opened == 2
    assert sorted(run_all(shop, succeed)) == [100 * key + 1 for key in KEYS]


def plan_waits(shop: Shop) -> list[Any]:
    found = stored(shop.backend)
    following = next_generation(found)
    assert following is not None
    return waited_for(shop.backend, found, following)


def test_a_change_that_waits_can_be_taken_back() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.push("a", 1)
    shop.topic.scale(12)
    assert ask(shop, 12)
    assert ask(shop, 4)
    assert stored(shop.backend).definition.change is None
    assert not ask(shop, 4)


@pytest.mark.parametrize(
    ("shards", "valid"),
    [(0, "1 to 12"), (13, "1 to 12"), (True, "1 to 12"), (5, "12, 6, 4, 3, 2, 1")],
)
def test_a_number_that_is_not_possible_is_refused(shards: int, valid: str) -> None:
    shop = Shop(partitions=12, shards=4)
    with pytest.raises(InvalidValue, match=valid):
        ask(shop, shards)
    assert stored(shop.backend).definition.change is None


def test_shards_end_only_when_no_living_worker_has_one() -> None:
    shop = Shop(partitions=4, shards=4)
    hold = grant(shop.backend, "w1", 0, 1)
    assert ask(shop, 2)
    advance(shop.backend, NAME)
    assert stored(shop.backend).definition.phase is ChangePhase.ENDING
    hold.release()
    advance(shop.backend, NAME)
    assert stored(shop.backend).definition.shards == 2


def test_shards_of_a_worker_that_does_not_answer_are_fenced_in_the_end() -> None:
    shop = Shop(partitions=4, shards=4)
    hold = grant(shop.backend, "w1", 0, 1)
    assert ask(shop, 2)
    advance(shop.backend, NAME)
    fence_shards(shop.backend, NAME)
    assert stored(shop.backend).definition.phase is ChangePhase.MOVING
    advance(shop.backend, NAME)
    assert stored(shop.backend).definition.generation == 1
    hold.release()


class DyingBackend:
    """A backend of a process that dies before one of its commits, or right after it."""

    def __init__(self, backend: MemoryBackend, commits: int, *, after: bool) -> None:
        self._backend = backend
        self._left = commits
        self._after = after
        self.log, self.table, self.store = backend.log, backend.table, self
        self.name = backend.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def get(self, key: str) -> Any:
        return self._backend.store.get(key)

    def scan(self, prefix: str) -> Any:
        return self._backend.store.scan(prefix)

    def commit(self, change: Change | Transaction) -> int | list[Range]:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise KeyboardInterrupt
        if isinstance(change, Change):
            done: int | list[Range] = self._backend.store.commit(change)
        else:
            done = self._backend.commit(change)
        if self._left < 0:
            raise KeyboardInterrupt
        return done


def deaths(shop: Shop, shards: int) -> Iterator[int]:
    """Let one process after another take the steps and die, each one commit later."""
    for after in (False, True):
        for commits in range(20):
            backend: Any = DyingBackend(shop.backend, commits, after=after)
            try:
                advance(backend, NAME)
            except KeyboardInterrupt:
                yield commits
            if stored(shop.backend).definition.shards == shards:
                return


@pytest.mark.parametrize("partitions", [8, 12])
@pytest.mark.parametrize("shards", [1, 2, 3, 6])
def test_a_change_is_finished_whoever_takes_its_steps_and_wherever_they_die(
    partitions: int, shards: int
) -> None:
    """With 8 partitions at first, what RQ and DLQ hold is fed."""
    shop = Shop(partitions=partitions, shards=4)
    push(shop, 0, 1)
    fail_all(shop, parked={1})
    shop.topic.scale(12)
    ask(shop, shards)
    assert list(deaths(shop, shards))
    shop.now += 1000
    handled = run_all(shop, succeed)
    for key in set(KEYS) - {1}:
        assert numbers_of(handled, key) == [0, 1]
    assert len(handled) == 2 * 23


def test_older_storage_topics_of_the_queues_are_fed_in_order() -> None:
    """8 -> 12 partitions at 4 shards, with failures and dead letters: most keys move."""
    shop = Shop(partitions=8, shards=4)
    push(shop, 0, 1)
    shop.push(None, *UNKEYED)
    fail_all(shop, parked={1, 5})
    shop.topic.scale(12)
    push(shop, 2)
    planned = plan_next(shop)
    advance(shop.backend, NAME)
    found = stored(shop.backend)
    assert (found.definition.generation, found.definition.opened) == (1, 2)
    assert found.fed_storage(found.rq) == [0]
    assert {(each.queue, each.storage) for each in planned.feeds} == {
        (Queue.RQ, 0),
        (Queue.DLQ, 0),
    }
    assert [each.partitions for each in planned.adds] == [12, 12]
    shop.now += 1000
    handled = run_all(shop, succeed)
    for key in set(KEYS) - {1, 5}:
        assert numbers_of(handled, key) == [0, 1, 2]
    assert len(handled) == 22 * 3 + 20
    assert numbers_of(shop.queued(Queue.DLQ), 1) == [0, 1, 2]


def test_older_storage_topics_of_the_queues_are_deleted_once_they_are_empty() -> None:
    shop = Shop(partitions=8, shards=4)
    push(shop, 0, 1)
    fail_all(shop, parked={1})
    shop.topic.scale(12)
    advance(shop.backend, NAME)
    found = stored(shop.backend)
    assert found.definition.generation == 1
    assert not found.rq.definition.deleted
    shop.now += 1000
    run_all(shop, succeed)
    advance(shop.backend, NAME)
    found = stored(shop.backend)
    assert found.rq.definition.storages == (1,)
    assert found.dlq.definition.storages == (0, 1)
    push(shop, 2)
    assert len(run_all(shop, succeed)) == len(KEYS) - 1
    change(shop, 6)
    push(shop, 3)
    assert len(run_all(shop, succeed)) == len(KEYS) - 1


def test_a_storage_topic_is_deleted_only_in_the_generation_that_found_it_empty() -> None:
    shop = Shop(partitions=4, shards=4)
    shop.topic.scale(8)
    found = stored(shop.backend)
    opening = opening_of(found)
    assert opening is not None
    shop.backend.store.commit(opening)
    deletion = deletion_of_drained(shop.backend, stored(shop.backend))
    assert deletion is not None
    ask(shop, 2)
    with pytest.raises(Conflict):
        shop.backend.store.commit(deletion)


def fail_all(shop: Shop, parked: Container[int] = ()) -> None:
    """Call each message once: those of some keys become dead letters, all others wait in RQ."""
    for shard in range(stored(shop.backend).definition.shards):
        shop.owner(shard).run(lambda value: REJECTED if value // 100 in parked else FAILED)


def succeed(value: Any) -> CallOutcome:
    return CallOutcome(OutcomeKind.SUCCESS)


def plan_next(shop: Shop) -> Any:
    found = stored(shop.backend)
    following = next_generation(found)
    assert following is not None
    return plan_generation(shop.backend, found, following)


def test_requests_go_to_the_shards_of_the_next_generation() -> None:
    shop = Shop(partitions=12, shards=4)
    push(shop, 0)
    shop.push(None, *UNKEYED)
    fail_all(shop, parked={*KEYS, 90})
    put_requests(shop.backend, NAME, LetterSelection(), RequestAction.REDELIVER, OPERATOR, now_ms=5)
    change(shop, 6)
    handled = run_all(shop, succeed)
    assert len(handled) == len(KEYS) + len(UNKEYED)
    for shard in range(6):
        shop.owner(shard).advance()
    assert not pending_requests(shop.backend, NAME)


def test_a_request_while_shards_are_moved_waits_for_the_next_generation() -> None:
    shop = Shop(partitions=12, shards=4)
    push(shop, 0, keys=[1])
    fail_all(shop, parked={1})
    ask(shop, 6)
    hold = grant(shop.backend, "w1", 0)
    advance(shop.backend, NAME)
    fence_shards(shop.backend, NAME)
    hold.release()
    put_requests(shop.backend, NAME, LetterSelection(), RequestAction.REDELIVER, OPERATOR, now_ms=5)
    assert stored(shop.backend).definition.generation == 1
    (request,) = pending_requests(shop.backend, NAME)
    assert request.shard == stored(shop.backend).keys.of_key(b"c1")


def test_a_request_for_a_letter_of_a_deleted_storage_topic_forbids_no_change() -> None:
    """It was made while the letter was discarded, and the storage topic was deleted then."""
    shop = Shop(partitions=8, shards=4)
    shop.push(None, 9000)
    fail_all(shop, parked={90})
    shop.topic.scale(12)
    advance(shop.backend, NAME)
    put_requests(shop.backend, NAME, LetterSelection(), RequestAction.DISCARD, OPERATOR, now_ms=5)
    (request,) = pending_requests(shop.backend, NAME)
    run_all(shop, succeed)
    advance(shop.backend, NAME)
    assert stored(shop.backend).dlq.definition.storages == (1,)
    late = encode_request(replace(request, id="late.0"))
    shop.backend.store.commit(Change(writes={request_key(NAME, "late.0"): late}))
    change(shop, 6)
    run_all(shop, succeed)
    assert not pending_requests(shop.backend, NAME)


def test_processes_that_read_what_to_move_do_not_stop_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop(partitions=12, shards=4)
    right, reading = feeders.next_ledgers, 0

    def next_ledgers(*given: Any) -> Any:
        """Read, and let another process begin to move meanwhile."""
        nonlocal reading
        reading += 1
        if reading % 2 == 0:
            raise KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            take_step(shop.backend, stored(shop.backend))
        return right(*given)

    monkeypatch.setattr(steps, "next_ledgers", next_ledgers)
    change(shop, 6)
    assert reading == 2


def test_a_step_of_a_deleted_subscription_does_not_fence_its_deletion() -> None:
    shop = Shop(partitions=4, shards=4)
    hold = grant(shop.backend, "w1", 0)
    ask(shop, 2)
    advance(shop.backend, NAME)
    fence_shards(shop.backend, NAME)
    hold.release()
    before = stored(shop.backend)
    assert before.definition.phase is ChangePhase.MOVING
    delete_subscription(shop.backend, NAME)
    fence = shop.backend.store.get(FENCES + own_fence(NAME))
    take_step(shop.backend, before)
    assert shop.backend.store.get(FENCES + own_fence(NAME)) == fence


def test_the_plan_says_what_moves() -> None:
    shop = Shop(partitions=12, shards=4)
    shop.push("c1", 1)
    plan = plan_shards(shop.backend, stored(shop.backend), 12, uneven=False)
    assert (plan.before, plan.shards, plan.generation, plan.opened) == (4, 12, 1, 1)
    assert (plan.waits_for, plan.adds, plan.feeds) == ((), (), ())
    assert plan.moved == pytest.approx(11 / 12, abs=0.01)
    same = plan_shards(shop.backend, stored(shop.backend), 4, uneven=False)
    assert (same.before, same.shards, same.moved) == (4, 4, 0.0)


def test_every_message_is_counted_once_over_all_generations() -> None:
    shop = Shop(partitions=8, shards=4)
    push(shop, 0, 1)
    shop.push(None, *UNKEYED)
    fail_all(shop, parked={1, 5})
    for partitions, shards in ((12, 3), (8, 8)):
        shop.topic.scale(partitions)
        push(shop, partitions)
        advance(shop.backend, NAME)
        change(shop, shards)
        stats = shop.stats()
        assert stats.total.inserted == stats.total.accounted
        shop.now += 1000
        run_all(shop, succeed)
        advance(shop.backend, NAME)
        stats = shop.stats()
        assert stats.total.inserted == stats.total.accounted
    assert stats.total.dead == 2 * 4
    assert stats.total.acked == stats.total.inserted - stats.total.dead


@pytest.mark.parametrize(("partitions", "before", "shards"), [(6, 2, 3), (6, 6, 1), (12, 4, 3)])
def test_the_plan_tells_the_part_of_the_keys_that_move(
    partitions: int, before: int, shards: int
) -> None:
    shop = Shop(partitions=partitions, shards=before)
    plan = plan_shards(shop.backend, stored(shop.backend), shards, uneven=False)
    keys = [b"c%d" % number for number in range(20_000)]
    old = list(map(stored(shop.backend).keys.of_key, keys))
    change(shop, shards)
    new = list(map(stored(shop.backend).keys.of_key, keys))
    assert plan.moved == pytest.approx(sum(map(ne, old, new)) / len(keys), abs=0.02)


def test_the_attempts_of_a_message_count_in_the_next_generation() -> None:
    shop = Shop(partitions=8, shards=4, attempts=3)
    push(shop, 0)
    fail_all(shop)
    shop.topic.scale(12)
    advance(shop.backend, NAME)
    shop.now += 10
    attempts = []
    for shard in range(4):
        owner = shop.owner(shard)
        owner.run(lambda value: FAILED)
        attempts += [attempt for _, attempt in owner.calls]
    assert attempts == [2] * len(KEYS)


def test_more_shards_than_calls_at_a_time_are_refused_with_what_is_valid() -> None:
    shop = Shop(partitions=4, shards=2)
    update_settings(shop.backend, NAME, load=LoadChange(concurrency_total=3))
    with pytest.raises(InvalidValue, match="shards is 4 · valid: 1 to 3, the concurrency_total"):
        ask(shop, 4)
    update_settings(shop.backend, NAME, load=LoadChange(concurrency_total=4))
    change(shop, 4)


def test_the_shards_of_a_new_generation_know_what_those_before_have_usually_called() -> None:
    shop = Shop(partitions=4, shards=4)
    push(shop, 1)
    for shard in range(4):
        owner = shop.owner(shard)
        owner.advance()
        owner.machine._turns.throttle.usual = 100.0
        owner.run_until_idle(lambda value: SUCCESS)
    change(shop, 2)
    takeovers = [read_takeover(shop.backend, stored(shop.backend), shard) for shard in range(2)]
    assert [each.counts.usual for each in takeovers] == [200.0, 200.0]
    assert [each.counts.acked for each in takeovers] == [0, 0]
