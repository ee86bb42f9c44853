"""The form of every protocol: events in, actions out, and nothing else.

A machine decides. It has no clock, does no I/O, draws no random numbers but from a generator that
it was given, and starts no thread; so the same events at the same times give the same actions, in a
test, in a simulation and in production. It is total: an event that it did not expect has a defined
answer, most often none. Whoever drives it carries out the actions and brings their outcome back as
events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

EventT_contra = TypeVar("EventT_contra", contravariant=True)
ActionT = TypeVar("ActionT")
StateT = TypeVar("StateT", bound=Enum)


class Machine(Protocol[EventT_contra, ActionT]):
    """Something that decides. For one thread."""

    def handle(self, event: EventT_contra, now: float) -> list[ActionT]:
        """Take in an event at a monotonic time, in seconds; what is to be done, in this order."""

    def deadline(self) -> float | None:
        """When it wants to be told the time at the latest, by whatever event its kind has for
        that; None when it waits for nothing."""

    def validate(self) -> None:
        """`AssertionError` that names the invariant which does not hold."""


class Step(NamedTuple, Generic[StateT]):
    """A change of state that may happen, and what causes it. None is a thing that is not there."""

    before: StateT | None
    cause: str
    after: StateT | None


class Transitions(Generic[StateT]):
    """All changes of state that a kind of thing may make.

    Code changes a state by `move` alone, so a step that is not in the table cannot be taken; what
    the table shows to readers is what runs.
    """

    def __init__(self, subject: str, steps: Iterable[tuple[StateT | None, str, StateT | None]]):
        self.subject = subject
        self._steps = {Step(*step): None for step in steps}

    def __iter__(self) -> Iterator[Step[StateT]]:
        return iter(self._steps)

    def move(self, before: StateT | None, cause: str, after: StateT) -> StateT:
        """The state after a step; `AssertionError` when the table does not have it."""
        self.check(before, cause, after)
        return after

    def check(self, before: StateT | None, cause: str, after: StateT | None) -> None:
        """`AssertionError` when the table does not have the step."""
        step = Step(before, cause, after)
        assert step in self._steps, f"{self.subject}: no step {step}"

    def markdown(self) -> str:
        """The table for readers."""

        def name(state: StateT | None) -> str:
            return "·" if state is None else f"`{state.value}`"

        rows = [f"| {name(s.before)} | {s.cause} | {name(s.after)} |" for s in self._steps]
        return "\n".join(["| from | by | to |", "|---|---|---|", *rows])
