"""The safeguards of tasks that share a source, each removed, to prove that the simulator notices.

A mutation replaces one function for the time of a test; the code itself knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tailrace.backend.contract import Change, TableKey
from tailrace.source import batch_commit, reading
from tailrace.source.batch_commit import BatchCommit
from tailrace.source.reader import Split
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import SplitState, state_entry
from tailrace.source.task import machine
from tailrace.source.task.actions import TaskAction, TaskView
from tailrace.source.task.leading import Leading
from tailrace.source.task.membership import Membership
from tailrace.testing.memory.store import MemoryStore


def without_the_epoch_of_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task raises the fence of a unit also if its epoch has ended."""

    def change(writes: Mapping[str, bytes | None], expect: object = None) -> Change:
        return Change(writes=writes)

    monkeypatch.setattr(reading, "Change", change)


def without_the_key_of_each_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a child writes the entry of the child, whichever parent reports it."""

    def report_entry(source: str, split: Split, parent: str = "") -> tuple[TableKey, bytes]:
        return state_entry(source, SplitState(split))

    monkeypatch.setattr(batch_commit, "report_entry", report_entry)


def without_the_removal_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished split is removed although splits follow it that are not finished."""

    def removable(self: SplitGraph) -> list[str]:
        return [
            each for each, state in self.states.items() if state.finished and not state.split.kept
        ]

    monkeypatch.setattr(SplitGraph, "removable", removable)


def without_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write under an epoch that has ended is accepted."""
    monkeypatch.setattr(MemoryStore, "check_fence", lambda self, fence: None)


def without_the_parent_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split is read before those that it follows are finished."""

    def may_start(self: SplitGraph, split_id: str) -> bool:
        return not self.is_finished(split_id)

    monkeypatch.setattr(SplitGraph, "may_start", may_start)


def without_the_check_of_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of unknown outcome is stored again without a look at what is stored."""

    def is_stored(self: BatchCommit) -> bool:
        self._is_unknown = False
        return False

    monkeypatch.setattr(BatchCommit, "_is_stored", is_stored)


def without_the_answer_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance waits for ever for a member that does not answer."""
    right = Leading.tick

    def tick(self: Leading, now: float) -> list[TaskAction]:
        self._answer_by = None
        return right(self, now)

    monkeypatch.setattr(Leading, "tick", tick)


def without_the_check_of_the_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was removed from the members does not notice it."""
    monkeypatch.setattr(Membership, "is_entered", lambda self: True)


def without_the_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task gives units away."""

    def surplus(task: str, views: Mapping[str, TaskView]) -> dict[str, str]:
        return {}

    monkeypatch.setattr(machine, "surplus", surplus)


MUTATIONS = {
    mutation.__name__: mutation
    for mutation in (
        without_the_epoch_of_a_claim,
        without_the_key_of_each_parent,
        without_the_removal_rule,
        without_the_fence,
        without_the_parent_gate,
        without_the_check_of_an_outcome,
        without_the_answer_timeout,
        without_the_check_of_the_membership,
        without_the_balance,
    )
}
