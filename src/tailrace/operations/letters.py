"""Dead letters as people look at them: one by one, or by what was said against them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidValue
from tailrace.hub import Hub
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.operations.message_view import Form, shown_value, text_of
from tailrace.operations.registered import dead_letter_topic, find_pipeline, find_writer
from tailrace.pipeline.dead_letters import resolved_by
from tailrace.pipeline.registry import RegisteredPipeline
from tailrace.source.headers import ERROR, OF_DEAD_LETTERS, POSITION, READER, WHERE, WRITER
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_within
from tailrace.topic.topic import Topic

_NUMBERS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter that waits. `position` is its own, `origin` where the record was or was read.

    `consumer` is the writer that could not take it, or the pipeline whose reader could not read it.
    `form` says what `value` is: a document, text or base64.
    """

    position: str
    consumer: str
    error: str
    origin: str
    time: datetime
    namespace: str
    mode: str
    op: str
    headers: dict[str, str]
    form: Form
    value: Any


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one consumer against which the same was said, but for numbers in it.

    `error` is what was said against the first.
    """

    consumer: str
    error: str
    count: int
    first: str
    last: str
    oldest: datetime


@dataclass(frozen=True, slots=True)
class WaitingLetter:
    """A letter as it is stored, and where."""

    where: Partition
    record: Record

    @property
    def headers(self) -> dict[str, bytes]:
        """Its headers, with those that make it a letter."""
        return dict(self.record.headers or {})

    @property
    def writer(self) -> str | None:
        """The writer that could not take it; None where it could not be read."""
        found = self.headers.get(WRITER)
        return None if found is None else text_of(found)

    @property
    def consumer(self) -> str:
        """Whose letter it is."""
        return self.writer or text_of(self.headers.get(READER, b""))

    @property
    def position(self) -> str:
        """Where it is."""
        return f"{self.where}@{self.record.offset}"

    @property
    def origin(self) -> str:
        """Where the record was, or where it was to be read."""
        return text_of(self.headers.get(POSITION) or self.headers.get(WHERE) or b"")


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The dead letters of a writer, or of all of a pipeline."""

    pipeline: RegisteredPipeline
    writer: str | None
    topic: Topic[Any]

    @property
    def name(self) -> str:
        """As people write it: ``lake/crm``, or ``lake``."""
        return self.writer or self.pipeline.name

    def waiting(self) -> Iterator[WaitingLetter]:
        """Its letters that nobody has dealt with, in order."""
        for where, records in unresolved(self.topic):
            for record in records_of(records):
                letter = WaitingLetter(where, record)
                if self.writer in (None, letter.writer):
                    yield letter


def open_mailbox(hub: Hub, consumer: str) -> Mailbox:
    """The letters of ``lake/crm``, or of the whole pipeline ``lake``."""
    if "/" in consumer:
        pipeline, writer = find_writer(hub, consumer).pipeline, consumer
    else:
        pipeline, writer = find_pipeline(hub, consumer), None
    topic = dead_letter_topic(hub, pipeline)
    if topic is None:
        raise InvalidValue("consumer", consumer, f"one whose topic {pipeline.dead_letters} exists")
    return Mailbox(pipeline, writer, topic)


def resolved(topic: Topic[Any], where: Partition) -> Progress:
    """What somebody has dealt with."""
    return Progress.load(topic.view.backend.table, resolved_by(topic.name), where)


def unresolved(topic: Topic[Any]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """All letters that nobody has dealt with, in order."""
    log = topic.view.backend.log
    for storage in topic.storage_topics:
        for number, (start, end) in enumerate(zip(storage.starts, storage.ends, strict=True)):
            where = Partition(topic.name, storage.index, number)
            for first, after in resolved(topic, where).holes(end):
                for records in batches_within(log, where, max(first, start), after):
                    yield where, records


def count_letters(hub: Hub, pipeline: RegisteredPipeline) -> dict[str, int]:
    """How many letters wait, by consumer; those of the reader under the pipeline's name."""
    topic = dead_letter_topic(hub, pipeline)
    counts: Counter[str] = Counter()
    for _, records in unresolved(topic) if topic is not None else ():
        writers: Any = pc.map_lookup(
            records["headers"], query_key=pa.scalar(WRITER), occurrence="first"
        )
        for found in pc.value_counts(writers).to_pylist():
            name = found["values"]
            counts[pipeline.name if name is None else text_of(name)] += found["counts"]
    return dict(counts)


def list_letters(hub: Hub, consumer: str, count: int) -> list[DeadLetter]:
    """The oldest letters that wait, at most so many."""
    letters = open_mailbox(hub, consumer).waiting()
    return [view_letter(letter) for letter, _ in zip(letters, range(count), strict=False)]


def group_letters(hub: Hub, consumer: str) -> list[LetterGroup]:
    """All letters that wait, by what was said against them, most first."""
    groups: dict[tuple[str, str], list[WaitingLetter]] = {}
    for letter in open_mailbox(hub, consumer).waiting():
        error = text_of(letter.headers.get(ERROR, b""))
        groups.setdefault((letter.consumer, _NUMBERS.sub("#", error)), []).append(letter)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [
        LetterGroup(
            consumer=letters[0].consumer,
            error=text_of(letters[0].headers.get(ERROR, b"")),
            count=len(letters),
            first=letters[0].position,
            last=letters[-1].position,
            oldest=_time(letters[0]),
        )
        for letters in ordered
    ]


def show_letters(hub: Hub, consumer: str, positions: Sequence[str]) -> list[DeadLetter]:
    """The letters at these positions; see `chosen`."""
    return [view_letter(letter) for letter in chosen(open_mailbox(hub, consumer), positions)]


def chosen(mailbox: Mailbox, positions: Sequence[str]) -> list[WaitingLetter]:
    """The waiting letters that are meant, in order: by their own positions, by their offsets, or by
    the positions that the records had. `InvalidValue` for the first that is none of them."""
    wanted = set(positions)
    met: set[str] = set()
    found = []
    for letter in mailbox.waiting():
        names = {letter.position, letter.origin, str(letter.record.offset)} & wanted
        if names:
            met |= names
            found.append(letter)
    for text in positions:
        if text not in met:
            raise InvalidValue(
                "position",
                text,
                f"a dead letter of {mailbox.name} that waits",
                f"list them: tailrace dlq {mailbox.name} list",
            )
    return found


def view_letter(letter: WaitingLetter) -> DeadLetter:
    """A letter as people look at it."""
    record = letter.record
    form, value = shown_value(record.value, Form.JSON)
    headers = {k: text_of(v) for k, v in letter.headers.items() if k not in OF_DEAD_LETTERS}
    return DeadLetter(
        position=letter.position,
        consumer=letter.consumer,
        error=text_of(letter.headers.get(ERROR, b"")),
        origin=letter.origin,
        time=_time(letter),
        namespace=text_of(record.key or b""),
        mode=Mode(record.mode).name.lower(),
        op=Op(record.op).name.lower(),
        headers=headers,
        form=form,
        value=value,
    )


def _time(letter: WaitingLetter) -> datetime:
    return datetime.fromtimestamp(letter.record.timestamp / 1000, UTC)
