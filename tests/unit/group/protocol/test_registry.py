"""The registry of a process: whom it follows, and when it has itself elected."""

from __future__ import annotations

from tailrace.group.protocol.actions import Elect, FindLeader
from tailrace.group.protocol.events import Elected, LeaderFound, Subscribed, Tick, Unsubscribed
from tailrace.group.protocol.registry import Registry
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import LeaderEntry

GROUP, PROCESS = "billing", "a.1"
TIMES = Times()


def test_a_second_election_whose_answer_is_lost_is_repeated() -> None:
    """The answer to the first one was late, so the process had itself elected twice."""
    registry = Registry(PROCESS, TIMES)
    registry.handle(Subscribed("a.1/c", GROUP, 35.0), 0.0)
    assert registry.handle(LeaderFound(GROUP, None), 0.0) == [Elect(GROUP, 0)]
    late = TIMES.ping_s
    assert registry.handle(LeaderFound(GROUP, LeaderEntry(PROCESS, 10)), late) == [Elect(GROUP, 10)]
    registry.handle(Elected(GROUP, 10, ()), late + 0.1)
    assert registry.handle(LeaderFound(GROUP, LeaderEntry(PROCESS, 11)), late + 0.2) == []
    assert not registry.leads
    answered_by = late + TIMES.ping_s
    assert FindLeader(GROUP) in registry.handle(Tick(), answered_by)
    found = registry.handle(LeaderFound(GROUP, LeaderEntry(PROCESS, 11)), answered_by)
    assert found == [Elect(GROUP, 11)]


def test_the_removal_of_an_earlier_leader_does_not_end_a_later_one() -> None:
    """The thread that watches the store may report a change after the election that follows it."""
    registry = Registry(PROCESS, TIMES)
    registry.handle(Subscribed("a.1/c", GROUP, 35.0), 0.0)
    assert registry.handle(LeaderFound(GROUP, None), 0.0) == [Elect(GROUP, 0)]
    registry.handle(Elected(GROUP, 11, ()), 0.1)
    assert registry.handle(LeaderFound(GROUP, None, removed_at=10), 0.2) == []
    assert registry.leads == [GROUP]
    assert registry.handle(LeaderFound(GROUP, None, removed_at=12), 0.3) == [Elect(GROUP, 0)]
    assert registry.leads == []


def test_a_session_that_joins_after_the_leader_left_finds_another() -> None:
    """The last session here had left just before, and its group is not forgotten yet."""
    registry = Registry(PROCESS, TIMES)
    registry.handle(Subscribed("a.1/c", GROUP, 35.0), 0.0)
    registry.handle(LeaderFound(GROUP, LeaderEntry("b.1", 10)), 0.0)
    registry.handle(Tick(), 0.0)
    registry.handle(Unsubscribed("a.1/c"), 0.1)
    assert registry.handle(LeaderFound(GROUP, None), 0.2) == []
    registry.handle(Subscribed("a.1/d", GROUP, 35.0), 0.3)
    assert FindLeader(GROUP) in registry.handle(Tick(), 0.3)
    assert registry.handle(LeaderFound(GROUP, None), 0.4) == [Elect(GROUP, 0)]
