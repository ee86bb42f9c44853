"""Records of a commit log, from one place to another, of the namespaces that are meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tailrace.errors import UnknownTopic
from tailrace.hub import Hub
from tailrace.message import Message, Position
from tailrace.operations.edges import Edge, parse_edge
from tailrace.operations.message_view import Form, shown_value, text_of
from tailrace.operations.offsets import parse_place
from tailrace.operations.registered import commit_log, find_pipeline
from tailrace.operations.tailing import span_between, tail
from tailrace.pipeline.namespace import NamespaceFilter
from tailrace.topic.topic import Topic


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record of a commit log. `form` says what `value` is: a document, text or base64."""

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
    """The records of a pipeline's commit log from `start` up to and with `end`, some at a time.

    Places are offsets, where the log has one partition, or what `tail` takes. The namespace filter
    is as in definitions.
    """
    wanted = NamespaceFilter.parse(namespace)
    pipeline = find_pipeline(hub, name)
    log = commit_log(hub, pipeline)
    if log is None:
        raise UnknownTopic(pipeline.commit_log, hub.backend.name, hub.topics())
    span = span_between(log, None, _edge(log, start), _edge(log, end))
    return (
        [message for message in some if wanted.matches(message.key or "")]
        for some in tail(log, span)
    )


def _edge(log: Topic[Any], text: str) -> Edge:
    if not text.isdecimal():
        return parse_edge(text)
    where, offsets = parse_place(log, text)
    return Position(*where, offsets.start)


def view_record(message: Message[Any]) -> LoggedRecord:
    """A record as JSON shows it."""
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
