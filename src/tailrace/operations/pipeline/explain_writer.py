"""The state of a writer, its failure and lag, and commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.message import Mode, Op, Partition, Position
from tailrace.operations.explanation import Explanation, Fact, Remedy
from tailrace.operations.pipeline.describe import PipelineView, WriterView, view_pipeline
from tailrace.operations.pipeline.lookup import FoundWriter, find_writer
from tailrace.operations.topic.message_view import text_of
from tailrace.pipeline.writer_status import WaitsFor, WriterStatus
from tailrace.pipeline.writing.writer_ledger import stored_placement, stored_plan, stored_state
from tailrace.topic.consumers import consumers
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import record_at

_VALUE_CHARACTERS_MAX: Final = 60
"""Number of characters of a failed record's value that are shown."""


def explain_writer(hub: Hub, name: str) -> Explanation:
    """Explain a writer, ``lake/crm``."""
    return _WriterExplainer(hub, find_writer(hub, name)).explanation()


class _WriterExplainer:
    """Collects the facts about one writer."""

    def __init__(self, hub: Hub, found: FoundWriter) -> None:
        self._hub = hub
        self._found = found
        self._pipeline: PipelineView = view_pipeline(hub, found.pipeline)
        self._view: WriterView = next(
            each for each in self._pipeline.writers if each.name == str(found.name)
        )
        self._running = self._pipeline.running

    def explanation(self) -> Explanation:
        headline, remedies = self._headline()
        facts = [*self._start(), *self._failure(), *self._outage()]
        facts += [*self._lag(), *self._compaction()]
        facts += self._placement()
        view = self._view
        if view.dead_letters:
            letters = format_amount(view.dead_letters, "pending dead letter")
            facts.append(Fact("parked", letters))
            remedies.append(Remedy("dead letters", f"tailrace dlq {view.name} list --by error"))
        waits = view.state in (WriterStatus.FAILED, WriterStatus.WAITING) or bool(view.lag)
        waits = waits or self._pipeline.start_error is not None
        return Explanation(view.name, waits, headline, tuple(facts), tuple(remedies))

    def _headline(self) -> tuple[str, list[Remedy]]:
        view, pipeline = self._view, self._found.pipeline.name
        since = "" if view.since is None else f" since {view.since:%H:%M:%S}Z"
        if view.state is WriterStatus.FAILED:
            where = f" at {view.position}" if view.position else ""
            return f"FAILED{since}{where} (on_error={view.on_error})", self._after_failure()
        if self._running is None:
            file = "" if self._found.pipeline.file else f"the file that defines {pipeline}"
            run = Remedy("run", self._found.pipeline.run_command, file)
            return f"STOPPED{since}: pipeline {pipeline} does not run, lag {view.lag:,}", [run]
        if view.state is WriterStatus.STOPPED and self._pipeline.starting:
            return f"STARTING: pipeline {pipeline} starts, lag {view.lag:,} ({self._running})", []
        if view.state is WriterStatus.STOPPED:
            headline = f"STOPPED{since}: {pipeline} runs without this writer ({self._running})"
            command = self._found.pipeline.run_command
            again = Remedy("run", command, "after adding it to the definition")
            forget = Remedy(
                "forget", f"tailrace pipeline forget {view.name}", "after stopping the pipeline"
            )
            return headline, [again, forget]
        if view.state is WriterStatus.WAITING:
            headline = f"WAITING{since} for {view.waits_for}, lag {view.lag:,} ({self._running})"
            retry = f"tailrace pipeline retry {view.name}"
            remedies = [Remedy("retry", retry, "tries again at once")]
            if view.waits_for is WaitsFor.SINK:
                test = self._found.pipeline.test_command
                remedies.append(Remedy("test", test, "connects to every sink"))
            return headline, remedies
        if view.lag:
            resumes = view.state is not WriterStatus.RUNNING
            doing = "RESUMING one record at a time" if resumes else "RUNNING"
            watch = Remedy("watch", f"tailrace pipeline status {pipeline} --watch")
            return f"{doing}{since}, lag {view.lag:,} ({self._running})", [watch]
        return f"RUNNING{since}, caught up ({self._running})", []

    def _after_failure(self) -> list[Remedy]:
        name, position = self._view.name, self._view.position
        when = "at the next start" if self._running is None else "at once"
        command = f"tailrace pipeline retry {name}"
        if position is None:
            return self._rewinds(command) or [Remedy("retry", command, f"continues {when}")]
        retry = Remedy("retry", f"{command} --one-at-a-time", f"continues {when}")
        offset = self._short(position)
        pipeline = self._found.pipeline.name
        show = f"tailrace pipeline log {pipeline} --from {offset} --to {offset} -o json"
        skip = f"tailrace pipeline ack {name} {offset} --reason TEXT"
        follow = f"then {format_amount(max(0, self._view.lag - 1), 'record')} to deliver"
        return [Remedy("inspect", show), retry, Remedy("skip", skip, follow)]

    def _rewinds(self, retry: str) -> list[Remedy]:
        """Return the valid rewinds, if the sink refused a rewind or has lost a staged file."""
        backend, name = self._hub.backend, self._found.name
        plan = stored_plan(backend, name)
        lost = plan is not None and bool(plan.staged)
        remedies = [
            Remedy(
                "rewind",
                f"tailrace pipeline rewind {self._view.name} {self._short(position)}",
                "writes the records of the lost file again" if lost else "to the start of a file",
            )
            for position in stored_state(backend, name).valid_rewinds
        ]
        if lost and remedies:
            remedies.append(Remedy("retry", retry, "after you moved the file back"))
        return remedies

    def _short(self, position: str) -> str:
        """Return the offset alone if the log has one partition."""
        return position.rpartition("@")[2] if len(self._view.marks) == 1 else position

    def _start(self) -> Iterator[Fact]:
        """Yield why the last run of the pipeline did not start."""
        if self._pipeline.start_error is not None:
            yield Fact("start", f"the last run did not start: {self._pipeline.start_error}")

    def _failure(self) -> Iterator[Fact]:
        view = self._view
        if view.state is not WriterStatus.FAILED:
            return
        yield Fact("error", view.error or "unknown")
        if view.position is not None:
            topic, storage, number, offset = Position.parse(view.position)
            try:
                record = record_at(self._hub.backend.log, Partition(topic, storage, number), offset)
            except LookupError:  # the failed record was compacted
                return
            what = f"{Op(record.op).name.lower()} of {text_of(record.key or b'')}"
            value = text_of(record.value)
            if len(value) > _VALUE_CHARACTERS_MAX:
                value = f"{value[: _VALUE_CHARACTERS_MAX - 1]}…"
            yield Fact("record", f"{what} ({Mode(record.mode).name.lower()}): {value}")

    def _outage(self) -> Iterator[Fact]:
        view = self._view
        if view.state is not WriterStatus.WAITING:
            return
        yield Fact("reason", view.error or "unknown")
        if view.next_try is not None:
            state = stored_state(self._hub.backend, self._found.name)
            failed = format_amount(state.tries, "attempt")
            yield Fact("next try", f"{view.next_try:%H:%M:%S}Z, after {failed} that failed")

    def _lag(self) -> Iterator[Fact]:
        view = self._view
        if view.lag:
            marks = ", ".join(f"{where}@{mark}" for where, mark in view.marks.items())
            yield Fact("lag", f"{format_amount(view.lag, 'record')}, from {marks} on")
        else:
            yield Fact("lag", "none: every record is acknowledged")
        if self._running is not None and view.lag_bytes > self._found.pipeline.log_bytes_max:
            yield Fact("reader", "waits for this writer, whose lag exceeds log_bytes_max")
        yield Fact("delivered", f"{format_amount(view.rows, 'row')} since the first start")

    def _placement(self) -> Iterator[Fact]:
        """Yield where the work on Spark is done, if executors lack a directory of the driver."""
        found = stored_placement(self._hub.backend, self._found.name)
        if found.driver_reads:
            yield Fact("reading", "the driver reads the hub and sends the records to executors")
        if found.driver_writes:
            yield Fact("writing", "the driver writes the rows that executors transform")
        for note in found.notes:
            yield Fact("executors", note)

    def _compaction(self) -> Iterator[Fact]:
        """Yield the number of records that only this writer keeps from compaction."""
        view, backend = self._view, self._hub.backend
        if view.state in (WriterStatus.RUNNING, WriterStatus.RESUMING):
            return
        for text, mark in view.marks.items():
            where = Partition.parse(text)
            others = set(consumers(backend.store, where.topic)) - {view.name}
            marks = [Progress.load(backend.table, other, where).mark for other in others]
            passed = min(marks, default=backend.log.bounds(where).end)
            if count := backend.log.amount(where, mark, passed).records:
                kept = format_amount(count, "record")
                yield Fact("compaction", f"keeps {kept} of {text} for this writer alone")
