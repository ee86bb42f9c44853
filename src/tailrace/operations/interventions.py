"""What operators do to a writer, whether it runs or not. Each is audited.

An intervention raises the writer's fence, so that whoever drives it can write no more, changes its
books and tells the audit in one transaction. A running driver finds itself overtaken, and begins
anew with what it finds; otherwise the next start does.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tailrace.backend.contract import TableKey
from tailrace.errors import Busy, Fenced, InvalidValue, Sealed, UnknownTopic
from tailrace.group.group import checked_reason
from tailrace.hub import Hub
from tailrace.operations.audit import audit_append, audit_entry, audit_topic
from tailrace.operations.offsets import Place, format_offsets, parse_place
from tailrace.operations.registered import FoundWriter, commit_log, find_writer, runner
from tailrace.pipeline.books import Books, State, WriterState
from tailrace.pipeline.definition import BATCH_ROWS
from tailrace.pipeline.plan import (
    Plan,
    PlanKind,
    acknowledged,
    left_over,
    next_parts,
    open_streams,
)
from tailrace.topic.topic import Topic

ATTEMPTS_MAX: Final = 20
"""How often an intervention begins again because a driver took the writer back between."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """What was done to a writer. `running` says who drives it now, if somebody does: then it takes
    effect at once, else at the next start."""

    target: str
    command: str
    what: str
    running: str | None
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a writer's books, beside the ledgers that were changed already."""

    what: str
    plan: Plan | None
    state: WriterState | None = None
    extra: Mapping[TableKey, bytes | None] = field(default_factory=dict)


Decide = Callable[[Books], Decision]


@dataclass(frozen=True, slots=True)
class Operated:
    """A writer in the hands of an operator, with its commit log."""

    hub: Hub
    found: FoundWriter
    log: Topic[Any]

    @classmethod
    def find(cls, hub: Hub, writer: str) -> Operated:
        """By the writer's full name."""
        found = find_writer(hub, writer)
        log = commit_log(hub, found.pipeline)
        if log is None:
            raise UnknownTopic(found.pipeline.commit_log, hub.backend.name, hub.topics())
        return cls(hub, found, log)

    def books(self) -> Books:
        """Its books, neither read nor taken."""
        return Books(self.hub.backend, self.found.name, self.log.view)

    def intervene(self, command: str, decide: Decide, reason: str = "") -> Intervention:
        """Change its books as `decide` says, which raises where that is refused.

        It is asked before anything has happened, and again once the writer is taken. Meanwhile its
        driver keeps back. `Busy` while another operator is at it.
        """
        target = str(self.found.name)
        books = self.books()
        books.read()
        decide(books)
        audit = audit_topic(self.hub)
        owner = f"{command} by process {os.getpid()} on {socket.gethostname()}"
        with self.hub.backend.hold(self.found.name.operator, owner):
            for _ in range(ATTEMPTS_MAX):
                books.take()
                before = standing(books)
                decision = decide(books)
                after = standing(books) | {"done": decision.what}
                entry = audit_entry(command, target, before=before, after=after, reason=reason)
                try:
                    books.commit(
                        plan=decision.plan,
                        state=decision.state,
                        extra=decision.extra,
                        appends=(audit_append(audit, entry),),
                    )
                except Fenced:
                    continue  # its driver took it back between: there is no harm in that
                except Sealed as sealed:
                    audit.view.follow(sealed)
                    continue
                running = runner(self.hub, self.found.pipeline.name)
                return Intervention(target, command, decision.what, running, before, after)
        raise Busy(f"writer {target} was taken back {ATTEMPTS_MAX} times meanwhile", "try again")


def standing(books: Books) -> dict[str, Any]:
    """How a writer stands, for the audit."""
    return {
        "state": books.state.state.value,
        "marks": {str(where): held.mark for where, held in books.progress.items()},
        "plan": None if books.plan is None else books.plan.id,
    }


def ack(hub: Hub, writer: str, offset: str, reason: str) -> Intervention:
    """Acknowledge records without sending them.

    `InvalidValue` for what the log does not hold, for what is acknowledged already, and for an
    empty reason.
    """
    text = checked_reason(reason)
    operated = Operated.find(hub, writer)
    place = parse_place(operated.log, offset)

    def decide(books: Books) -> Decision:
        where, offsets = place
        _check_held(hub, place)
        if acknowledged(books.progress[where], offsets) == [offsets]:
            mark = books.progress[where].mark
            raise InvalidValue(
                "offset", str(place), f"one that is not acknowledged; the first is {where}@{mark}"
            )
        books.skip(where, offsets)
        return Decision(f"acknowledged {place}", books.plan, _past(books.state, place))

    return operated.intervene("pipeline ack", decide, text)


def _check_held(hub: Hub, place: Place) -> None:
    where, offsets = place
    start, end, _ = hub.backend.log.bounds(where)
    if not start <= offsets.start < offsets.end <= end:
        valid = f"{start} to {end - 1}, which {where} holds" if start < end else f"{where} is empty"
        raise InvalidValue("offset", format_offsets(offsets), valid)


def _past(state: WriterState, place: Place) -> WriterState | None:
    """The state once a place is acknowledged: if it failed there, it no longer has."""
    partition, _, offset = (state.position or "").rpartition("@")
    inside = partition == str(place.partition) and int(offset) in range(*place.offsets)
    return waiting(state) if inside else None


def waiting(state: WriterState) -> WriterState | None:
    """The state of a failed writer that may go on; None, so as it is, for any other."""
    if state.state is not State.FAILED:
        return None
    since_ms = time.time_ns() // 1_000_000
    return msgspec.structs.replace(
        state, state=State.STOPPED, since_ms=since_ms, error=None, position=None
    )


def retry(hub: Hub, writer: str) -> Intervention:
    """Let a failed writer go on where it stopped. `InvalidValue` for one that has not failed, and
    would only deliver again what is under way."""

    def decide(books: Books) -> Decision:
        if books.state.state is not State.FAILED:
            remedy = f"one record at a time: tailrace pipeline retry {writer} --one-at-a-time"
            raise InvalidValue("writer", writer, "one that has failed, and it has not", remedy)
        return Decision("goes on", books.plan, waiting(books.state))

    return Operated.find(hub, writer).intervene("pipeline retry", decide)


def retry_one_at_a_time(hub: Hub, writer: str) -> Intervention:
    """Let a writer go on one record at a time, until past its open plan or else its next batch."""
    operated = Operated.find(hub, writer)

    def decide(books: Books) -> Decision:
        if books.plan is not None and books.plan.staged:
            raise Busy(f"a batch of {writer} is being published", "try again when it is")
        parts = () if books.plan is None else left_over(books.plan.parts, books.progress)
        if not parts:
            streams = open_streams(operated.log.view, books.progress)
            parts = next_parts(hub.backend.log, streams, books.progress, BATCH_ROWS, 1)
        if not parts:
            return Decision("goes on: nothing waits for it", None, waiting(books.state))
        plan = Plan(f"{books.fence.epoch}-1", PlanKind.SINGLE, parts)
        shown = ", ".join(f"{part.partition}@{format_offsets(part.offsets)}" for part in parts)
        return Decision(f"goes on with {shown} one at a time", plan, waiting(books.state))

    return operated.intervene("pipeline retry --one-at-a-time", decide)
