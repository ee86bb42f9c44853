"""What a writer waits for and why, and the commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.amount import format_amount
from tailrace.hub import Hub
from tailrace.message import Mode, Op, Partition, Position
from tailrace.operations.explanation import Explanation, Fact, Remedy
from tailrace.operations.message_view import text_of
from tailrace.operations.pipelines import WriterView, view_writer
from tailrace.operations.records_between import amount_between
from tailrace.operations.registered import (
    FoundWriter,
    commit_log,
    find_writer,
    read_books,
    runner,
)
from tailrace.pipeline.books import State
from tailrace.topic.consumers import consumers
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import record_at
from tailrace.writers.staging import WHOLE_FILES

_VALUE_SHOWN: Final = 60


def explain_writer(hub: Hub, name: str) -> Explanation:
    """Explain a writer, ``lake/crm``."""
    return _Writer(hub, find_writer(hub, name)).explanation()


class _Writer:
    """A writer that is being explained."""

    def __init__(self, hub: Hub, found: FoundWriter) -> None:
        self._hub = hub
        self._found = found
        self._view: WriterView = view_writer(hub, found)
        self._running = runner(hub, found.pipeline.name)

    def explanation(self) -> Explanation:
        headline, remedies = self._headline()
        facts = [*self._failure(), *self._behind(), *self._compaction()]
        view = self._view
        if view.dead_letters:
            letters = format_amount(view.dead_letters, "dead letter")
            facts.append(Fact("parked", f"{letters} of this writer wait for somebody"))
            remedies.append(Remedy("letters", f"tailrace dlq {view.name} list --by error"))
        waits = view.state is State.FAILED or bool(view.behind)
        return Explanation(view.name, waits, headline, tuple(facts), tuple(remedies))

    def _headline(self) -> tuple[str, list[Remedy]]:
        view, pipeline = self._view, self._found.pipeline.name
        since = "" if view.since is None else f" since {view.since:%H:%M:%S}Z"
        if view.state is State.FAILED:
            where = f" at {view.position}" if view.position else ""
            return f"FAILED{since}{where} (on_error={view.on_error})", self._after_failure()
        if self._running is None:
            waits = f"{view.behind:,} wait" if view.behind else "nothing waits for it"
            run = Remedy("run", "tailrace pipeline run FILE", f"the file that defines {pipeline}")
            return f"STOPPED{since}: pipeline {pipeline} does not run, {waits}", [run]
        if view.state is State.STOPPED:
            headline = f"WAITING{since}: {pipeline} runs without it ({self._running})"
            again = Remedy("run", "tailrace pipeline run FILE", "with it in the definition again")
            forget = Remedy("forget", f"tailrace pipeline forget {view.name}", "once it is stopped")
            return headline, [again, forget]
        if view.behind:
            doing = "RUNNING" if view.state is State.RUNNING else "RESUMING one record at a time"
            watch = Remedy("watch", f"tailrace pipeline status {pipeline} --watch")
            return f"{doing}{since}, {view.behind:,} behind ({self._running})", [watch]
        return f"RUNNING{since}, caught up ({self._running})", []

    def _after_failure(self) -> list[Remedy]:
        name, position = self._view.name, self._view.position
        when = "at its next start" if self._running is None else "at once"
        command = f"tailrace pipeline retry {name} --one-at-a-time"
        retry = Remedy("retry", command, f"goes on {when}")
        if position is None:
            return self._other_rewinds() or [retry]
        place = self._short(position)
        pipeline = self._found.pipeline.name
        look = f"tailrace pipeline log {pipeline} --from {place} --to {place} -o json"
        skip = f"tailrace pipeline ack {name} {place} --reason TEXT"
        follow = f"then {max(0, self._view.behind - 1):,} follow"
        return [Remedy("look", look), retry, Remedy("skip", skip, follow)]

    def _other_rewinds(self) -> list[Remedy]:
        """Where it can be rewound to, if it has failed because its files do not begin there."""
        log = commit_log(self._hub, self._found.pipeline)
        found = WHOLE_FILES.search(self._view.error or "")
        if found is None or log is None:
            return []
        books = read_books(self._hub, self._found.name, log)
        first, after = map(int, found.groups())
        meant = {} if books.rewind is None else books.rewind.offsets
        return [
            Remedy(
                "rewind",
                f"tailrace pipeline rewind {self._view.name} {self._short(f'{where}@{offset}')}",
                "to the beginning of a file",
            )
            for where, start in meant.items()
            if first < start < after
            for offset in (first, after)
        ]

    def _short(self, position: str) -> str:
        """The offset alone where the log has one partition."""
        return position.rpartition("@")[2] if len(self._view.marks) == 1 else position

    def _failure(self) -> Iterator[Fact]:
        view = self._view
        if view.state is not State.FAILED:
            return
        yield Fact("error", view.error or "unknown")
        if view.position is not None:
            topic, storage, number, offset = Position.parse(view.position)
            try:
                record = record_at(self._hub.backend.log, Partition(topic, storage, number), offset)
            except LookupError:  # what it failed at is no longer there
                return
            what = f"{Op(record.op).name.lower()} of {text_of(record.key or b'')}"
            value = text_of(record.value)
            shown = value if len(value) <= _VALUE_SHOWN else f"{value[: _VALUE_SHOWN - 1]}…"
            yield Fact("record", f"{what} ({Mode(record.mode).name.lower()}): {shown}")

    def _behind(self) -> Iterator[Fact]:
        view = self._view
        if view.behind:
            marks = ", ".join(f"{where}@{mark}" for where, mark in view.marks.items())
            yield Fact("behind", f"{format_amount(view.behind, 'record')}, from {marks} on")
        else:
            yield Fact("behind", "nothing: all that was read is acknowledged")
        if self._running is not None and view.behind_bytes > self._found.pipeline.log_bytes_max:
            yield Fact("reader", "waits for this writer, because so much is before it")
        yield Fact("delivered", f"{format_amount(view.rows, 'row')} since its first start")

    def _compaction(self) -> Iterator[Fact]:
        """Whether records stay in the log for this writer alone, because it does not go on."""
        view, backend = self._view, self._hub.backend
        if view.state in (State.RUNNING, State.RESUMING):
            return
        for text, mark in view.marks.items():
            where = Partition.parse(text)
            others = set(consumers(backend.store, where.topic)) - {view.name}
            marks = [Progress.load(backend.table, other, where).mark for other in others]
            passed = min(marks, default=backend.log.bounds(where).end)
            if count := amount_between(backend.log, where, mark, passed).records:
                kept = format_amount(count, "record")
                yield Fact("compaction", f"{kept} of {text} stay in the log for it alone")
