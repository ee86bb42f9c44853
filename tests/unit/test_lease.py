"""Leases: one holder at a time, judged by each one's own monotonic clock."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Change, Entry, Store
from tailrace.backend.lease import Lease, LeaseObserver, LeaseState
from tailrace.clock import SystemClock
from tailrace.errors import BackendUnavailable, DecodeError, Fenced, InvalidValue, OutcomeUnknown
from tailrace.testing import ManualClock, MemoryBackend

KEY = "lease/leader"
DURATION_MS = 3000


class FaultyStore:
    """A store whose next calls fail or block, as told."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock
        self.failing = False
        self.outcome_unknown = False
        self.blocked_s = 0.0

    def get(self, key: str) -> Entry | None:
        self._clock.advance(self.blocked_s)
        if self.failing:
            raise BackendUnavailable("the store does not answer")
        return self._store.get(key)

    def commit(self, change: Change) -> int:
        if self.failing:
            raise BackendUnavailable("the store does not answer")
        version = self._store.commit(change)
        if self.outcome_unknown:
            raise OutcomeUnknown("the answer was lost")
        return version

    def scan(self, prefix: str) -> list[Entry]:
        return self._store.scan(prefix)

    def watch(self, prefix: str, after: int) -> list[Entry]:
        return self._store.watch(prefix, after)


class Host:
    """A host with a clock of its own and its own way to the one store."""

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.clock = ManualClock()
        self.store = FaultyStore(store, self.clock)
        self.observer = LeaseObserver(self.store, self.clock)

    def take(self) -> Lease | None:
        return Lease.take(self.observer, KEY, self.name, DURATION_MS)

    def taken(self) -> Lease:
        lease = self.take()
        assert lease is not None
        return lease

    def expired(self) -> bool:
        return self.observer.expired(KEY)


@pytest.fixture
def store() -> Store:
    return MemoryBackend().store


@pytest.fixture
def one(store: Store) -> Host:
    return Host("one", store)


@pytest.fixture
def other(store: Store) -> Host:
    return Host("other", store)


def test_a_free_lease_is_taken_at_once(one: Host) -> None:
    assert one.expired()
    lease = one.taken()
    assert (lease.owner, lease.key) == ("one", KEY)
    assert lease.held(one.clock.monotonic())


def test_a_held_lease_is_not_taken(one: Host, other: Host) -> None:
    one.taken()
    assert other.take() is None
    assert not other.expired()


def test_its_own_holder_does_not_take_it_twice(one: Host) -> None:
    one.taken()
    assert one.take() is None


def test_a_lease_that_stood_still_for_its_duration_is_taken_with_a_higher_epoch(
    one: Host, other: Host
) -> None:
    first = one.taken()
    assert not other.expired()
    other.clock.advance(2.999)
    assert other.take() is None
    other.clock.advance(0.001)
    second = other.taken()
    assert second.epoch > first.epoch


def test_time_before_the_first_look_does_not_count(one: Host, other: Host) -> None:
    one.taken()
    other.clock.advance(1000)
    assert not other.expired()


def test_a_renewal_starts_the_time_anew_for_every_observer(one: Host, other: Host) -> None:
    lease = one.taken()
    for _ in range(5):
        assert not other.expired()
        other.clock.advance(2.5)
        lease.renew()
    assert not other.expired()
    other.clock.advance(3)
    assert other.expired()


def test_the_epoch_stays_over_renewals_and_the_version_moves(one: Host, store: Store) -> None:
    lease = one.taken()
    epoch = lease.epoch
    for renewals in (1, 2, 3):
        lease.renew()
        entry = store.get(KEY)
        assert entry is not None
        assert LeaseState.of(entry) == LeaseState(
            owner="one", duration_ms=DURATION_MS, epoch=epoch, renewals=renewals
        )
        assert lease.version == entry.version
    assert lease.epoch == epoch < lease.version


def test_the_epoch_is_the_version_of_the_commit_that_took_it(one: Host, store: Store) -> None:
    lease = one.taken()
    entry = store.get(KEY)
    assert entry is not None
    assert lease.epoch == lease.version == entry.version == LeaseState.of(entry).epoch


def test_the_holder_counts_from_before_it_sent_the_renewal(one: Host) -> None:
    lease = one.taken()
    one.clock.advance(2)
    lease.renew()
    one.clock.advance(2.999)
    assert lease.held(one.clock.monotonic())
    one.clock.advance(0.001)
    assert not lease.held(one.clock.monotonic())


def test_a_lapsed_lease_that_nobody_took_may_be_renewed(one: Host) -> None:
    lease = one.taken()
    epoch = lease.epoch
    one.clock.advance(100)
    assert not lease.held(one.clock.monotonic())
    lease.renew()
    assert lease.held(one.clock.monotonic())
    assert lease.epoch == epoch


def test_a_holder_that_was_replaced_is_told_so_and_holds_it_no_more(one: Host, other: Host) -> None:
    lease = one.taken()
    other.expired()
    other.clock.advance(3)
    successor = other.taken()
    with pytest.raises(Fenced) as caught:
        lease.renew()
    assert (caught.value.epoch, caught.value.current) == (lease.epoch, successor.epoch)
    assert not lease.held(one.clock.monotonic())
    successor.renew()


def test_a_released_lease_is_free_at_once(one: Host, other: Host) -> None:
    first = one.taken()
    assert not other.expired()
    first.release()
    assert not first.held(one.clock.monotonic())
    assert other.taken().epoch > first.epoch


def test_a_released_lease_is_not_renewed(one: Host) -> None:
    lease = one.taken()
    lease.release()
    with pytest.raises(Fenced):
        lease.renew()


def test_a_late_release_leaves_the_successor_alone(one: Host, other: Host) -> None:
    lease = one.taken()
    other.expired()
    other.clock.advance(3)
    successor = other.taken()
    lease.release()
    successor.renew()


def test_of_two_that_saw_it_expire_one_takes_it(one: Host, other: Host, store: Store) -> None:
    third = Host("third", store)
    one.taken()
    for host in (other, third):
        assert not host.expired()
        host.clock.advance(3)
        assert host.expired()
    assert [host.take() is None for host in (other, third)] == [False, True]


def test_losing_the_race_for_the_commit_is_no_take(one: Host, other: Host, store: Store) -> None:
    class Overtaken(FaultyStore):
        def get(self, key: str) -> Entry | None:
            entry = super().get(key)
            one.taken()
            return entry

    overtaken = LeaseObserver(Overtaken(store, other.clock), other.clock)
    assert Lease.take(overtaken, KEY, "other", DURATION_MS) is None


def test_time_around_a_failed_look_does_not_count(one: Host, other: Host) -> None:
    one.taken()
    assert not other.expired()
    other.clock.advance(1)
    assert not other.expired()
    other.store.failing = True
    other.clock.advance(50)
    with pytest.raises(BackendUnavailable):
        other.expired()
    other.clock.advance(50)
    other.store.failing = False
    assert not other.expired()
    other.clock.advance(1.999)
    assert not other.expired()
    other.clock.advance(0.001)
    assert other.expired()


def test_time_in_which_a_look_blocked_does_not_count(one: Host, other: Host) -> None:
    one.taken()
    other.store.blocked_s = 10.0
    assert not other.expired()
    assert not other.expired()
    other.store.blocked_s = 0.0
    other.clock.advance(3)
    assert other.expired()


def test_steps_of_wall_clocks_mean_nothing(one: Host, other: Host) -> None:
    lease = one.taken()
    assert not other.expired()
    for host in (one, other):
        host.clock.step(+86_400_000)
    assert not other.expired()
    assert lease.held(one.clock.monotonic())
    other.clock.step(-2 * 86_400_000)
    other.clock.advance(3)
    assert other.expired()


def test_a_renewal_that_failed_may_be_tried_again(one: Host) -> None:
    lease = one.taken()
    one.store.failing = True
    with pytest.raises(BackendUnavailable):
        lease.renew()
    one.store.failing = False
    one.clock.advance(2)
    lease.renew()
    one.clock.advance(2)
    assert lease.held(one.clock.monotonic())


def test_a_renewal_whose_outcome_was_unknown_is_known_as_its_own(one: Host) -> None:
    lease = one.taken()
    one.store.outcome_unknown = True
    with pytest.raises(OutcomeUnknown):
        lease.renew()
    one.store.outcome_unknown = False
    lease.renew()
    assert lease.held(one.clock.monotonic())


def test_a_lease_whose_renewal_was_unknown_is_still_released(one: Host, other: Host) -> None:
    lease = one.taken()
    one.store.outcome_unknown = True
    with pytest.raises(OutcomeUnknown):
        lease.renew()
    one.store.outcome_unknown = False
    lease.release()
    assert other.expired()


def test_a_change_may_expect_the_lease_at_the_version_of_its_holder(
    one: Host, other: Host, store: Store
) -> None:
    lease = one.taken()
    lease.renew()
    store.commit(Change(expect={KEY: lease.version}, writes={"grant": b"1"}))
    other.expired()
    other.clock.advance(3)
    other.taken()
    with pytest.raises(Exception, match=f"{KEY} has version"):
        store.commit(Change(expect={KEY: lease.version}, writes={"grant": b"2"}))


def test_an_entry_that_is_no_lease_is_named(one: Host, store: Store) -> None:
    store.commit(Change(writes={KEY: b"{}"}))
    with pytest.raises(DecodeError, match=KEY):
        one.expired()


@pytest.mark.parametrize("duration_ms", [0, -1])
def test_a_duration_that_is_not_positive_is_refused(one: Host, duration_ms: int) -> None:
    with pytest.raises(InvalidValue, match="duration_ms"):
        Lease.take(one.observer, KEY, "one", duration_ms)


def test_the_clock_of_the_machine_serves_too(store: Store) -> None:
    clock = SystemClock()
    lease = Lease.take(LeaseObserver(store, clock), KEY, "one", 60_000)
    assert lease is not None
    assert lease.held(clock.monotonic())
    assert clock.now_ms() > 1_495_000_000_000
