"""When the processes of an app are started, stopped and killed."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from tailrace.operations.app.supervision import (
    KILL_EXTRA_S,
    STEADY_S,
    AnnounceRestart,
    Began,
    KillProcess,
    ProcessExited,
    ProcessReady,
    ProcessRefused,
    StartProcess,
    StopAsked,
    Supervision,
    SupervisionAction,
    SupervisionEvent,
    TerminateProcess,
    TimePassed,
)

DRAIN_S = 30.0
KILLED = -signal.SIGKILL


class Processes:
    """A supervision with the longest delays, and a clock."""

    def __init__(self, count: int) -> None:
        self.machine = Supervision(count, DRAIN_S, random=lambda: 0.0)
        self.now = 1000.0

    def after(
        self, event: SupervisionEvent | None = None, *, seconds: float = 0.0
    ) -> list[SupervisionAction]:
        self.now += seconds
        actions = self.machine.handle(TimePassed() if event is None else event, self.now)
        self.machine.validate()
        return actions

    def all_ready(self) -> None:
        self.after(Began())
        for number in range(self.machine.count):
            self.after(ProcessReady(number))


def test_the_first_process_starts_alone_and_the_others_once_it_is_ready() -> None:
    processes = Processes(3)
    assert processes.after(Began()) == [StartProcess(0)]
    assert processes.after(seconds=100) == []
    assert processes.after(ProcessReady(0)) == [StartProcess(1), StartProcess(2)]
    assert processes.machine.exit_status is None


def test_a_process_that_ends_is_started_again_after_delays_that_double() -> None:
    processes = Processes(2)
    processes.all_ready()
    for delay_s in (0.5, 1.0, 2.0):
        assert processes.after(ProcessExited(1, KILLED)) == [AnnounceRestart(1, KILLED, delay_s)]
        assert processes.machine.deadline() == processes.now + delay_s
        assert processes.after(seconds=delay_s - 0.1) == []
        assert processes.after(seconds=0.1) == [StartProcess(1)]
        processes.after(ProcessReady(1))


def test_no_process_waits_longer_than_half_a_minute() -> None:
    processes = Processes(1)
    processes.all_ready()
    for _ in range(100):
        processes.after(ProcessExited(0, 1))
        assert processes.after(seconds=30) == [StartProcess(0)]


def test_a_process_that_was_ready_for_long_is_started_again_soon() -> None:
    processes = Processes(1)
    processes.all_ready()
    for _ in range(10):
        processes.after(ProcessExited(0, 1))
        processes.after(seconds=30)
    processes.after(ProcessReady(0))
    assert processes.after(ProcessExited(0, 0), seconds=STEADY_S) == [AnnounceRestart(0, 0, 0.5)]


def test_an_error_of_the_app_at_its_start_ends_everything_with_its_status() -> None:
    processes = Processes(3)
    processes.after(Began())
    processes.after(ProcessRefused(0))
    assert processes.after(ProcessExited(0, 2)) == []
    assert processes.machine.exit_status == 2


def test_a_crash_at_the_start_is_tried_again() -> None:
    processes = Processes(2)
    processes.after(Began())
    assert processes.after(ProcessExited(0, KILLED)) == [AnnounceRestart(0, KILLED, 0.5)]
    assert processes.after(seconds=0.5) == [StartProcess(0)]
    assert processes.after(ProcessReady(0)) == [StartProcess(1)]


def test_an_error_that_will_not_go_away_in_a_ready_process_drains_the_others() -> None:
    processes = Processes(3)
    processes.all_ready()
    processes.after(ProcessRefused(1))
    assert processes.after(ProcessExited(1, 1)) == [TerminateProcess(0), TerminateProcess(2)]
    processes.after(ProcessExited(0, 0))
    processes.after(ProcessExited(2, 3))
    assert processes.machine.exit_status == 1


def test_a_process_that_cannot_start_again_is_tried_again_while_others_work() -> None:
    processes = Processes(2)
    processes.all_ready()
    processes.after(ProcessExited(0, KILLED))
    processes.after(seconds=0.5)
    processes.after(ProcessRefused(0))
    assert processes.after(ProcessExited(0, 2)) == [AnnounceRestart(0, 2, 1.0)]
    assert processes.after(seconds=1) == [StartProcess(0)]
    processes.after(ProcessExited(1, KILLED))
    processes.after(ProcessRefused(0))
    assert processes.after(ProcessExited(0, 2)) == []
    assert processes.machine.exit_status == 2


def test_a_stop_ends_all_processes_and_starts_none() -> None:
    processes = Processes(3)
    processes.all_ready()
    processes.after(ProcessExited(2, KILLED))
    assert processes.after(StopAsked()) == [TerminateProcess(0), TerminateProcess(1)]
    assert processes.after(ProcessExited(0, 0), seconds=10) == []
    assert processes.machine.exit_status is None
    processes.after(ProcessExited(1, 0))
    assert processes.machine.exit_status == 0


def test_processes_that_do_not_end_within_the_drain_timeout_are_killed() -> None:
    processes = Processes(2)
    processes.all_ready()
    processes.after(StopAsked())
    processes.after(ProcessExited(0, 0))
    assert processes.after(seconds=DRAIN_S + KILL_EXTRA_S - 0.1) == []
    assert processes.after(seconds=0.1) == [KillProcess(1)]
    assert processes.after(seconds=10) == []
    processes.after(ProcessExited(1, KILLED))
    assert processes.machine.exit_status == 3


def test_a_process_that_leaves_messages_in_flight_makes_the_status_3() -> None:
    processes = Processes(2)
    processes.all_ready()
    processes.after(StopAsked())
    processes.after(ProcessExited(0, 3))
    processes.after(ProcessExited(1, 0))
    assert processes.machine.exit_status == 3


def test_an_error_while_stopping_is_an_error() -> None:
    processes = Processes(2)
    processes.all_ready()
    processes.after(StopAsked())
    processes.after(ProcessExited(0, 3))
    processes.after(ProcessExited(1, 1))
    assert processes.machine.exit_status == 1


def test_a_second_signal_kills_at_once() -> None:
    processes = Processes(2)
    processes.all_ready()
    processes.after(StopAsked())
    assert processes.after(StopAsked(), seconds=1) == [KillProcess(0), KillProcess(1)]
    processes.after(ProcessExited(0, KILLED))
    processes.after(ProcessExited(1, KILLED))
    assert processes.machine.exit_status == 3


def test_a_process_that_was_only_starting_has_left_nothing_in_flight() -> None:
    processes = Processes(2)
    processes.after(Began())
    assert processes.after(StopAsked()) == [TerminateProcess(0)]
    processes.after(ProcessExited(0, -signal.SIGTERM))
    assert processes.machine.exit_status == 0


def test_a_report_that_comes_late_changes_nothing() -> None:
    processes = Processes(2)
    processes.all_ready()
    processes.after(ProcessExited(1, KILLED))
    assert processes.after(ProcessReady(1)) == []
    assert processes.machine.ready == 1


EVENTS = st.one_of(
    st.builds(ProcessReady, st.integers(0, 2)),
    st.builds(ProcessRefused, st.integers(0, 2)),
    st.builds(ProcessExited, st.integers(0, 2), st.sampled_from([0, 1, 2, 3, KILLED])),
    st.just(TimePassed()),
    st.just(StopAsked()),
)


@given(st.lists(st.tuples(EVENTS, st.floats(0, 40)), max_size=40))
def test_it_ends_after_a_stop_whatever_happens_before(
    events: list[tuple[SupervisionEvent, float]],
) -> None:
    processes = Processes(3)
    running: set[int] = set()

    def follow(actions: list[SupervisionAction]) -> None:
        for action in actions:
            if isinstance(action, StartProcess):
                assert action.number not in running
                running.add(action.number)
            elif not isinstance(action, AnnounceRestart):
                assert action.number in running

    follow(processes.after(Began()))
    for event, seconds in events:
        if isinstance(event, ProcessExited | ProcessReady | ProcessRefused):
            if event.number not in running:
                continue
            if isinstance(event, ProcessExited):
                running.remove(event.number)
        follow(processes.after(event, seconds=seconds))
    if not processes.machine.stopping:
        follow(processes.after(StopAsked()))
    follow(processes.after(seconds=DRAIN_S + KILL_EXTRA_S))
    for number in list(running):
        processes.after(ProcessExited(number, KILLED))
    assert processes.machine.exit_status is not None
