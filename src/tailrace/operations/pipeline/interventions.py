"""Interventions of an operator in a writer: retry and acknowledge. Each is audited.

An intervention raises the writer's fence, so that the process that runs the writer can no longer
commit. It changes the writer's ledger and writes the audit entry in one transaction. The running
process notices the new fence and continues with the changed ledger; if none runs, the next start
does.
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
from tailrace.group.group import check_reason
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.operations.audit import audit_entry, audit_topic
from tailrace.operations.pipeline.lookup import FoundWriter, commit_log, find_writer, runner
from tailrace.operations.pipeline.offset_range import (
    OffsetRange,
    format_offsets,
    parse_offset_range,
)
from tailrace.pipeline.definition.settings import WriterSettings
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.plan import (
    PlanKind,
    WritePlan,
    acknowledged,
    next_parts,
    open_streams,
    unacknowledged_parts,
)
from tailrace.pipeline.writing.writer_ledger import WriterLedger, WriterState
from tailrace.topic.audit_log import audit_append

ATTEMPTS_MAX: Final = 20
"""Maximum number of attempts while the running process keeps raising the fence again."""


@dataclass(frozen=True, slots=True)
class InterventionReport:
    """The outcome of an intervention.

    `running` is the process that runs the writer: the change takes effect at once. None if the
    pipeline does not run: the change takes effect at its next start.
    """

    target: str
    command: str
    what: str
    running: str | None
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """The change of a writer's ledger, apart from the progress that was changed in place."""

    what: str
    plan: WritePlan | None
    state: WriterState | None = None
    extra: Mapping[TableKey, bytes | None] = field(default_factory=dict)


Decide = Callable[[WriterLedger], Decision]


@dataclass(frozen=True, slots=True)
class Intervention:
    """A writer that an operator changes, with its commit log."""

    hub: Hub
    found: FoundWriter
    log: Topic[Any]

    @classmethod
    def find(cls, hub: Hub, writer: str) -> Intervention:
        """Find a writer by its full name, ``lake/crm``."""
        found = find_writer(hub, writer)
        log = commit_log(hub, found.pipeline)
        if log is None:
            raise UnknownTopic(found.pipeline.commit_log, hub.backend.name, hub.topics())
        return cls(hub, found, log)

    def ledger(self) -> WriterLedger:
        """Return the writer's ledger, not read yet."""
        return WriterLedger(self.hub.backend, self.found.name, self.log.view)

    def apply(self, command: str, decide: Decide, reason: str = "") -> InterventionReport:
        """Change the ledger as `decide` returns. `decide` raises to refuse the change.

        `decide` is called before the fence is raised, so that a refusal changes nothing, and again
        after it. The running process does not commit meanwhile. Raise `Busy` while another operator
        changes the writer.
        """
        target = str(self.found.name)
        ledger = self.ledger()
        ledger.read()
        decide(ledger)
        audit = audit_topic(self.hub)
        owner = f"{command} by process {os.getpid()} on {socket.gethostname()}"
        with self.hub.backend.hold(self.found.name.operator, owner):
            for _ in range(ATTEMPTS_MAX):
                ledger.take_over()
                before = snapshot(ledger)
                decision = decide(ledger)
                after = snapshot(ledger) | {"done": decision.what}
                entry = audit_entry(command, target, before=before, after=after, reason=reason)
                try:
                    ledger.commit(
                        plan=decision.plan,
                        state=decision.state,
                        extra=decision.extra,
                        appends=(audit_append(audit.view, entry),),
                    )
                except Fenced:
                    continue  # the running process raised the fence again
                except Sealed as sealed:
                    audit.view.follow(sealed)
                    continue
                running = runner(self.hub, self.found.pipeline.name)
                return InterventionReport(target, command, decision.what, running, before, after)
        raise Busy(f"writer {target} was fenced {ATTEMPTS_MAX} times meanwhile", "try again")


def snapshot(ledger: WriterLedger) -> dict[str, Any]:
    """Return the state of a writer for the audit."""
    return {
        "state": ledger.state.state.value,
        "marks": {str(where): held.mark for where, held in ledger.progress.items()},
        "plan": None if ledger.plan is None else ledger.plan.id,
    }


def ack(hub: Hub, writer: str, offset: str, reason: str) -> InterventionReport:
    """Acknowledge records without delivering them.

    Raise `InvalidValue` for offsets that the log does not hold or that are acknowledged already,
    and for an empty reason.
    """
    text = check_reason(reason)
    intervention = Intervention.find(hub, writer)
    chosen = parse_offset_range(intervention.log, offset)

    def decide(ledger: WriterLedger) -> Decision:
        where, offsets = chosen
        _check_held(hub, chosen)
        if acknowledged(ledger.progress[where], offsets) == [offsets]:
            mark = ledger.progress[where].mark
            valid = f"an offset that is not acknowledged; the first is {where}@{mark}"
            raise InvalidValue("offset", str(chosen), valid)
        ledger.skip(where, offsets)
        return Decision(f"acknowledged {chosen}", ledger.plan, _past(ledger.state, chosen))

    return intervention.apply("pipeline ack", decide, text)


def _check_held(hub: Hub, chosen: OffsetRange) -> None:
    where, offsets = chosen
    start, end, _ = hub.backend.log.bounds(where)
    if not start <= offsets.start < offsets.end <= end:
        valid = f"{start} to {end - 1}, which {where} holds" if start < end else f"{where} is empty"
        raise InvalidValue("offset", format_offsets(offsets), valid)


def _past(state: WriterState, chosen: OffsetRange) -> WriterState | None:
    """Return the state without its failure if the writer failed inside the chosen offsets."""
    partition, _, offset = (state.position or "").rpartition("@")
    inside = partition == str(chosen.partition) and int(offset) in range(*chosen.offsets)
    return clear_failure(state) if inside else None


def clear_failure(state: WriterState) -> WriterState | None:
    """Return the state of a failed writer without its failure, or None to keep any other state."""
    if state.state is not WriterStatus.FAILED:
        return None
    since_ms = time.time_ns() // 1_000_000
    return msgspec.structs.replace(
        state,
        state=WriterStatus.STOPPED,
        since_ms=since_ms,
        error=None,
        position=None,
        valid_rewinds=(),
    )


def retry(hub: Hub, writer: str) -> InterventionReport:
    """Let a failed writer continue where it stopped, and one that waits for its sink try at once.

    Raise `InvalidValue` for any other writer: it would only deliver its current batch again.
    """

    def decide(ledger: WriterLedger) -> Decision:
        if ledger.state.state is WriterStatus.WAITING:
            return Decision("tries its sink again", ledger.plan)
        if ledger.state.state is not WriterStatus.FAILED:
            remedy = f"one record at a time: tailrace pipeline retry {writer} --one-at-a-time"
            raise InvalidValue("writer", writer, "", remedy, f"writer {writer} has not failed")
        return Decision("continues", ledger.plan, clear_failure(ledger.state))

    return Intervention.find(hub, writer).apply("pipeline retry", decide)


def retry_one_at_a_time(hub: Hub, writer: str) -> InterventionReport:
    """Let a writer continue one record at a time, to the end of its open plan or next batch."""
    intervention = Intervention.find(hub, writer)

    def decide(ledger: WriterLedger) -> Decision:
        if ledger.plan is not None and ledger.plan.staged:
            raise Busy(f"a batch of {writer} is being published", "try again when it is")
        parts = (
            () if ledger.plan is None else unacknowledged_parts(ledger.plan.parts, ledger.progress)
        )
        if not parts:
            streams = open_streams(intervention.log.view, ledger.progress)
            parts = next_parts(
                hub.backend.log, streams, ledger.progress, WriterSettings().batch_rows, 1
            )
        if not parts:
            return Decision("continues; no record waits", None, clear_failure(ledger.state))
        plan = WritePlan(f"{ledger.fence.epoch}-1", PlanKind.SINGLE, parts)
        shown = ", ".join(f"{part.partition}@{format_offsets(part.offsets)}" for part in parts)
        what = f"continues with {shown} one at a time"
        return Decision(what, plan, clear_failure(ledger.state))

    return intervention.apply("pipeline retry --one-at-a-time", decide)
