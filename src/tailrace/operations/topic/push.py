"""Pushing lines as messages, checked against the content type of the topic."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from tailrace.errors import EncodeError, Error, InvalidValue, MessageTooLarge
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.operations.topic.message_view import Form
from tailrace.payload import ANY_TYPE
from tailrace.pipeline.catalog import pipelines
from tailrace.topic.internal_topics import is_internal
from tailrace.topic.pending import Pending
from tailrace.topic.producer import Producer

PROGRESS_EVERY: Final = 1000
"""Number of lines between two reports of progress."""

_decode: Final = msgspec.json.Decoder().decode


class PushEnd(StrEnum):
    """The reason why a push ended."""

    DONE = "done"
    STOPPED = "stopped"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LineForm:
    """How a line becomes a message: its key, split at `separator` or the same for every line.

    Errors call a line by `noun`.
    """

    separator: bytes | None = None
    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    noun: str = "line"


@dataclass(frozen=True, slots=True)
class PushReport:
    """The result of a push: the number of stored messages, and the position of the `last` one.

    `last` is None if the push failed. `reason` names the refused line, or the failure.
    """

    topic: str
    end: PushEnd
    stored: int
    seconds: float
    last: str | None
    reason: str


def check_may_push(hub: Hub, topic: str) -> None:
    """Raise `InvalidValue` for a topic that only Tailrace or a pipeline of the hub may append to.

    A topic of a reserved name that no pipeline uses was created by a user, and may be pushed to.
    """
    yours = "push to a topic of your own"
    if is_internal(topic):
        raise InvalidValue("topic", topic, "", yours, f"{topic} is an internal topic of Tailrace")
    for pipeline in pipelines(hub.backend.store):
        if topic == pipeline.commit_log:
            what = f"{topic} is the commit log of pipeline {pipeline.name}: only its reader appends"
            status = f"show the pipeline: tailrace pipeline status {pipeline.name}"
            raise InvalidValue("topic", topic, "", f"{yours}, or {status}", what)
        if topic == pipeline.dead_letters:
            what = f"{topic} has the dead letters of pipeline {pipeline.name}"
            listed = f"list them: tailrace dlq {pipeline.name} list"
            raise InvalidValue("topic", topic, "", f"{yours}, or {listed}", what)


def push_lines(
    topic: Topic[Any],
    lines: Iterable[bytes],
    form: LineForm,
    progress: Callable[[int], None] = lambda _count: None,
) -> PushReport:
    """Push each line, in order, up to the first invalid one. The lines before it are stored.

    `KeyboardInterrupt` from `lines` ends the push in the same way. A failure of the hub ends it
    too; then the messages that were acknowledged before are stored.
    """
    started = time.monotonic()
    producer = topic.producer()
    end, reason, last = PushEnd.DONE, "", None
    try:
        try:
            for pending in _push_each(producer, lines, form, _parser(topic), progress):
                last = pending
        except KeyboardInterrupt:
            end = PushEnd.STOPPED
        except _Refused as refused:
            end, reason = PushEnd.REFUSED, str(refused)
        producer.flush()
    except Error as error:
        end, reason, last = PushEnd.FAILED, f"{type(error).__name__}: {error}", None
    finally:
        with contextlib.suppress(Error):
            producer.close()
    return PushReport(
        topic=topic.name,
        end=end,
        stored=producer.last_number,
        seconds=time.monotonic() - started,
        last=None if last is None else last.result().id,
        reason=reason,
    )


class _Refused(Exception):
    """An invalid line: its number and the error."""


def _push_each(
    producer: Producer[Any],
    lines: Iterable[bytes],
    form: LineForm,
    parse: Callable[[bytes], Any],
    progress: Callable[[int], None],
) -> Iterator[Pending]:
    for number, line in enumerate(lines, start=1):
        try:
            key, value = _split(line, form)
            parsed = parse(value)
            if parsed is not None:
                yield producer.push(parsed, key=key, headers=form.headers)
        except (EncodeError, InvalidValue, MessageTooLarge) as error:
            reason = str(error).replace(ANY_TYPE, "to push it anyway, add --any-type")
            raise _Refused(f"{type(error).__name__}: {form.noun} {number}: {reason}") from error
        if number % PROGRESS_EVERY == 0:
            progress(number)


def _split(line: bytes, form: LineForm) -> tuple[bytes | None, bytes]:
    if form.separator is None:
        return form.key, line
    key, found, value = line.partition(form.separator)
    if not found:
        shown = form.separator.decode("utf-8", "backslashreplace")
        raise InvalidValue(f"the {form.noun}", line[:40], f"KEY{shown}VALUE")
    return key, value


def _parser(topic: Topic[Any]) -> Callable[[bytes], Any]:
    """Return a function that parses a line. It returns None for an empty line of JSON."""
    form = Form.of_content_type(topic.view.definition.content_type)
    if form is Form.JSON:
        return _json
    return _text if form is Form.TEXT else bytes


def _json(line: bytes) -> msgspec.Raw | None:
    if not line.strip():
        return None
    try:
        _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EncodeError(
            f"not JSON, the content type of this topic: {error}",
            "for lines of text, create another topic: tailrace topic create NAME --type text",
        ) from error
    return msgspec.Raw(line)


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise EncodeError(f"not UTF-8, the encoding of this topic: {error}") from error
