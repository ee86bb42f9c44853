"""The form of every protocol: events in, actions out, and nothing else.

A machine decides. It has no clock, does no I/O, starts no thread, and draws random numbers only
from a generator that it was given. So the same events at the same times give the same actions, in a
test, in a simulation and in production. A machine is total: an unexpected event has a defined
answer, most often no action. The driver of a machine executes the actions and returns their
outcomes as events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

EventT_contra = TypeVar("EventT_contra", contravariant=True)
ActionT = TypeVar("ActionT")
StateT = TypeVar("StateT", bound=Enum)


class Machine(Protocol[EventT_contra, ActionT]):
    """A state machine. For one thread."""

    def handle(self, event: EventT_contra, now: float) -> list[ActionT]:
        """Handle an event at a monotonic time, in seconds; return the actions, in this order."""

    def deadline(self) -> float | None:
        """Return the time at which the machine must get its timer event at the latest; None if it
        waits for nothing."""

    def validate(self) -> None:
        """Raise `AssertionError`, which names the violated invariant."""


class Step(NamedTuple, Generic[StateT]):
    """A permitted change of state, and its cause. None stands for an object that does not exist."""

    before: StateT | None
    cause: str
    after: StateT | None


class Transitions(Generic[StateT]):
    """All permitted changes of state of one kind of object.

    Code changes a state only by `move`, so a step that is not in the table cannot happen; the table
    that readers see is the one that runs.
    """

    def __init__(self, subject: str, steps: Iterable[tuple[StateT | None, str, StateT | None]]):
        self.subject = subject
        self._steps = {Step(*step): None for step in steps}

    def __iter__(self) -> Iterator[Step[StateT]]:
        return iter(self._steps)

    def move(self, before: StateT | None, cause: str, after: StateT) -> StateT:
        """Return the state after a step; `AssertionError` if the table does not have the step."""
        self.check(before, cause, after)
        return after

    def check(self, before: StateT | None, cause: str, after: StateT | None) -> None:
        """Raise `AssertionError` if the table does not have the step."""
        step = Step(before, cause, after)
        assert step in self._steps, f"{self.subject}: no step {step}"

    def markdown(self) -> str:
        """Return the table as text for readers."""

        def name(state: StateT | None) -> str:
            return "·" if state is None else f"`{state.value}`"

        rows = [f"| {name(s.before)} | {s.cause} | {name(s.after)} |" for s in self._steps]
        return "\n".join(["| from | by | to |", "|---|---|---|", *rows])
