"""Reading records of a commit log, between two offset specs and by namespace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tailrace.errors import UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Message, Position
from tailrace.operations.pipeline.lookup import commit_log, find_pipeline
from tailrace.operations.pipeline.offset_range import parse_offset_range
from tailrace.operations.topic.message_view import Form, shown_value, text_of
from tailrace.operations.topic.tail import range_between, tail
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.topic.offset_spec import OffsetSpec, parse_offset_spec


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record of a commit log. `form` is the form of `value`: a document, text or base64."""

    position: str
    offset: int
    time: datetime
    mode: str
    op: str
    namespace: str
    headers: dict[str, str]
    form: Form
    value: Any


def read_log(
    hub: Hub, name: str, start: str, end: str, namespace: str | None
) -> Iterator[list[Message[Any]]]:
    """Yield the records of a pipeline's commit log from `start` to `end` inclusive, in batches.

    `start` and `end` are offset specs as in `tail`, or offsets if the log has one partition. The
    namespace filter is a name or a ``/regular expression/``.
    """
    wanted = NamespaceFilter.parse(namespace)
    pipeline = find_pipeline(hub, name)
    log = commit_log(hub, pipeline)
    if log is None:
        raise UnknownTopic(pipeline.commit_log, hub.backend.name, hub.topics())
    chosen = range_between(log, None, _parse(log, start), _parse(log, end))
    return (
        [message for message in batch if wanted.matches(message.key or "")]
        for batch in tail(log, chosen)
    )


def _parse(log: Topic[Any], text: str) -> OffsetSpec:
    if not text.isdecimal():
        return parse_offset_spec(text)
    where, offsets = parse_offset_range(log, text)
    return Position(*where, offsets.start)


def view_record(message: Message[Any]) -> LoggedRecord:
    """Return a record for JSON output."""
    form, value = shown_value(message.data, Form.JSON)
    return LoggedRecord(
        position=message.id,
        offset=message.offset,
        time=message.timestamp,
        mode=message.mode.name.lower(),
        op=message.op.name.lower(),
        namespace=message.key or "",
        headers={name: text_of(value) for name, value in message.headers.items()},
        form=form,
        value=value,
    )
