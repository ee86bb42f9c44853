"""Names that have one holder at a time."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import Busy, HubClosed, InvalidValue

NAMES = ("lake/crm", "..", "a b%2F", "Überlauf", "x" * 150)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_held_is_refused_with_the_text_of_its_owner(
    backend: Backend, name: str
) -> None:
    hold = backend.hold(name, "driver 1 on host a")
    assert (hold.name, hold.owner) == (name, "driver 1 on host a")
    assert backend.holder(name) == "driver 1 on host a"
    with pytest.raises(Busy, match="driver 1 on host a"):
        backend.hold(name, "driver 2")
    assert backend.holder(name) == "driver 1 on host a"


def test_a_released_name_is_free_and_may_be_held_by_another(backend: Backend) -> None:
    backend.hold("lake", "the first, with a long description").release()
    assert backend.holder("lake") is None
    with backend.hold("lake", "second"):
        assert backend.holder("lake") == "second"
    assert backend.holder("lake") is None


def test_a_name_that_was_never_held_has_no_holder(backend: Backend) -> None:
    assert backend.holder("lake") is None


def test_holds_of_different_names_are_independent(backend: Backend) -> None:
    holds = [backend.hold(name, name) for name in NAMES]
    holds[0].release()
    assert [backend.holder(name) for name in NAMES] == [None, *NAMES[1:]]


def test_releasing_a_hold_again_does_nothing(backend: Backend) -> None:
    first = backend.hold("lake", "first")
    first.release()
    backend.hold("lake", "second")
    first.release()
    assert backend.holder("lake") == "second"


def test_an_error_inside_a_with_statement_releases_the_name(backend: Backend) -> None:
    with pytest.raises(ZeroDivisionError), backend.hold("lake", "first"):
        raise ZeroDivisionError
    assert backend.holder("lake") is None


def test_releasing_after_the_backend_was_closed_does_nothing(backend: Backend) -> None:
    hold = backend.hold("lake", "first")
    backend.close()
    hold.release()
    with pytest.raises(HubClosed):
        backend.holder("lake")


def test_each_heartbeat_changes_the_number_that_others_see_and_nothing_else(
    backend: Backend,
) -> None:
    hold = backend.hold("lake", "first")
    numbers = [backend.beats("lake")]
    for _ in range(5):
        assert backend.beats("lake") == numbers[-1], "it changes without a beat"
        assert hold.beat()
        numbers.append(backend.beats("lake"))
    assert None not in numbers
    assert len(set(numbers)) == len(numbers)
    assert backend.holder("lake") == "first"


def test_a_heartbeat_ends_the_silence_of_a_holder(backend: Backend) -> None:
    assert backend.silent_s("lake") is None
    with backend.hold("lake", "first") as hold:
        deadline = time.monotonic() + 10
        while (before_s := backend.silent_s("lake") or 0.0) < 0.3:
            assert time.monotonic() < deadline, "the holder is never silent"
            time.sleep(0.01)
        beaten_at = time.monotonic()
        assert hold.beat()
        after_s = backend.silent_s("lake")
        since_s = time.monotonic() - beaten_at
    assert after_s is not None
    # However late this thread looks: the silence before the heartbeat does not count.
    assert after_s < before_s / 2 + since_s
    assert backend.silent_s("lake") is None


def test_a_heartbeat_wakes_no_follower(backend: Backend) -> None:
    with backend.hold("lake", "first") as hold, closing(backend.follower()) as follower:
        follower.arm()
        assert hold.beat()
        assert not follower.wait(0.01)


def test_heartbeats_of_different_names_are_independent(backend: Backend) -> None:
    one, other = backend.hold("one", "me"), backend.hold("other", "me")
    before = backend.beats("other")
    assert one.beat()
    assert backend.beats("other") == before
    other.release()
    assert backend.beats("one") is not None
    assert backend.beats("other") is None


def test_a_name_without_a_holder_has_no_heartbeat(backend: Backend) -> None:
    assert backend.beats("lake") is None
    hold = backend.hold("lake", "first")
    hold.release()
    assert backend.beats("lake") is None
    assert not hold.beat()


def test_a_released_hold_gives_no_heartbeat_for_the_next_holder(backend: Backend) -> None:
    first = backend.hold("lake", "first")
    first.release()
    with backend.hold("lake", "second"):
        before = backend.beats("lake")
        assert not first.beat()
        assert backend.beats("lake") == before


def test_a_closed_backend_gives_no_heartbeat(backend: Backend) -> None:
    hold = backend.hold("lake", "first")
    backend.close()
    assert not hold.beat()


@pytest.mark.parametrize(("name", "owner"), [("", "me"), ("lake", "")])
def test_a_name_and_an_owner_are_needed(backend: Backend, name: str, owner: str) -> None:
    with pytest.raises(InvalidValue):
        backend.hold(name, owner)


def test_of_many_threads_one_at_a_time_holds_a_name(backend: Backend) -> None:
    inside: list[int] = []
    most: list[int] = []
    held = [0] * 4

    def contend(number: int) -> None:
        while held[number] < 25:
            try:
                with backend.hold("lake", f"thread {number}"):
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)
                    held[number] += 1
            except Busy:
                continue

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(len(held))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert held == [25] * 4
    assert max(most) == 1
