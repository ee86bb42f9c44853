"""The state of a source, and what `tailrace status` says about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pytest

from tailrace.clock import utc_time
from tailrace.hub.hub import Hub
from tailrace.operations.source.checks import RESTART_MAX, check_source
from tailrace.operations.source.describe import EndedTask, SourceTask, SourceView
from tailrace.operations.source.health import SourceState, is_well, judge_source
from tailrace.source.report import NamespaceProgress, NamespaceState
from tailrace.testing import MemoryBackend

NOW: Final = utc_time(1_000_000_000_000)
"""2001-09-09 01:46:40Z."""

COPYING: Final = NamespaceProgress("orders", NamespaceState.COPYING, 40, 100)
FOLLOWED: Final = NamespaceProgress("users", NamespaceState.FOLLOWING, 7, 7, lag=3)
TASK: Final = SourceTask("t1", "process 7 on a", NOW, True, 2, 1, 1, 0.5)
STOPPED: Final = EndedTask("t0", "process 6 on a", NOW, NOW, True, True, None)
VIEW: Final = SourceView(
    name="shop",
    reader="FileReader",
    commit_log="shop.commits",
    dead_letters="shop.dead-letters",
    pipeline=False,
    alone=False,
    epoch=1,
    begun=True,
    splits=3,
    unfinished=2,
    waiting=(),
    records=47,
    unreadable=0,
    reader_waits=None,
    tasks=(),
    ended=(STOPPED,),
    namespaces=(FOLLOWED,),
    followed_by=(),
    run_command="tailrace source run shop.toml",
)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def judged(hub: Hub, view: SourceView) -> tuple[SourceState, str]:
    health = judge_source(hub, view)
    return health.state, health.why


def checked(
    hub: Hub, view: SourceView, now: datetime = NOW
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the problems and the notes: what, and the remedy."""
    found = check_source(hub, view, now)
    problems, notes = ([(each.what, each.remedy) for each in list] for list in found)
    return problems, notes


def test_a_source_whose_tasks_read_is_well(hub: Hub) -> None:
    running = replace(VIEW, tasks=(TASK,), ended=())
    assert judged(hub, running) == (SourceState.FOLLOWING, "1 task, lag 3")
    copying = replace(running, namespaces=(COPYING, FOLLOWED))
    why = "1 task, 40 of about 100 rows of 1 namespace copied"
    assert judged(hub, copying) == (SourceState.COPYING, why)
    for view in (running, copying):
        assert is_well(judge_source(hub, view).state)
        assert checked(hub, view) == ([], [])


def test_a_source_that_has_read_everything_is_well_and_a_note_if_it_was_to_follow(
    hub: Hub,
) -> None:
    assert judged(hub, VIEW) == (SourceState.IDLE, "no task runs, everything was read")
    note = ("no task runs since 01:46, caught up", VIEW.run_command)
    assert checked(hub, VIEW) == ([], [note])
    once = replace(VIEW, ended=(replace(STOPPED, follows=False),))
    assert checked(hub, once) == ([], [])


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (replace(VIEW, begun=False), "nothing was read yet"),
        (
            replace(VIEW, namespaces=(COPYING,)),
            "40 of about 100 rows of 1 namespace copied",
        ),
        (
            replace(VIEW, ended=(replace(STOPPED, caught_up=False),)),
            "its readers had not caught up",
        ),
    ],
)
def test_unread_splits_without_a_task_are_a_problem_but_not_just_after_a_clean_stop(
    hub: Hub, left: SourceView, why: str
) -> None:
    assert judged(hub, left) == (SourceState.STOPPED, f"no task runs, {why}")
    problem = (f"no task runs since 01:46, {why}", VIEW.run_command)
    assert checked(hub, left, NOW + RESTART_MAX) == ([problem], [])
    assert checked(hub, left, NOW + RESTART_MAX - timedelta(seconds=1)) == ([], [problem])


def test_a_source_whose_last_task_was_killed_is_a_problem_at_once(hub: Hub) -> None:
    killed = replace(VIEW, ended=(replace(STOPPED, ended=None, caught_up=False),))
    why = "process 6 on a was killed, its readers had not caught up"
    assert judged(hub, killed) == (SourceState.KILLED, why)
    ((what, remedy),) = checked(hub, killed)[0]
    assert what.startswith("no task runs, that of 01:46 was killed")
    assert remedy == VIEW.run_command


def test_a_source_whose_task_failed_is_a_problem_and_a_note_while_others_read(hub: Hub) -> None:
    failed = replace(VIEW, ended=(replace(STOPPED, error="OSError: the cable is out"),))
    assert judged(hub, failed) == (SourceState.FAILED, "process 6 on a: OSError: the cable is out")
    assert checked(hub, failed) == ([("FAILED 01:46", "tailrace explain shop")], [])
    others = replace(failed, tasks=(TASK,))
    assert judged(hub, others)[0] is SourceState.FOLLOWING
    note = ("a task FAILED 01:46, others continue: process 6 on a", "tailrace explain shop")
    assert checked(hub, others) == ([], [note])


def test_a_task_that_owns_units_and_sends_no_heartbeat_is_a_problem(hub: Hub) -> None:
    silent = replace(TASK, silent_s=hub.settings.lease.total_seconds() + 1)
    view = replace(VIEW, tasks=(silent,), ended=())
    state, why = judged(hub, view)
    assert state is SourceState.SILENT
    assert why.startswith("task t1 (process 7 on a) owns 2 units, no heartbeat for ")
    assert checked(hub, view)[0] == [(why, "tailrace source status shop")]
    idle = replace(view, tasks=(replace(silent, units=0),))
    assert judged(hub, idle)[0] is SourceState.FOLLOWING


def test_readers_that_find_nothing_are_a_problem(hub: Hub) -> None:
    waits = "no file matches 'in/*.jsonl' · searched /data/in · check the path"
    view = replace(VIEW, tasks=(TASK,), ended=(), reader_waits=waits)
    assert judged(hub, view) == (SourceState.WAITING, waits)
    ((what, _),) = checked(hub, view)[0]
    assert what == "no file matches 'in/*.jsonl', searched /data/in"


def test_pending_dead_letters_are_a_problem(hub: Hub) -> None:
    letters = ("2 pending dead letters", "tailrace dlq shop list --by error")
    assert checked(hub, replace(VIEW, unreadable=2))[0] == [letters]


def test_a_dead_task_that_nobody_has_noticed_does_not_count_as_running(hub: Hub) -> None:
    dead = replace(VIEW, tasks=(replace(TASK, process=None),), namespaces=(COPYING,))
    assert judged(hub, dead)[0] is SourceState.STOPPED
