"""Plans: what a change does and its consequences, before it is applied."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.operations.explanation import Fact, fact_lines


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """A change that has not been applied yet. `str` of a plan is the text for people.

    `changes` is False if there is nothing to do; `summary` then gives the reason. `facts` are the
    consequences and warnings, each under its name, such as ``undo``. `partitions` has the values
    of each partition that the change concerns, where the change has any.
    """

    target: str
    changes: bool
    summary: str
    facts: tuple[Fact, ...] = ()
    partitions: tuple[object, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.summary, *fact_lines(self.facts)])
