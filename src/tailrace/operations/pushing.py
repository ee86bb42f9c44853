"""Pushing lines: each a message, checked against what the topic holds, and sent pipelined."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from tailrace.errors import EncodeError, Error, InvalidValue, MessageTooLarge
from tailrace.operations.message_view import Form
from tailrace.topic.pending import Pending
from tailrace.topic.producer import Producer
from tailrace.topic.topic import Topic

PROGRESS_EVERY: Final = 1000
"""Progress is told after so many lines."""

_decode: Final = msgspec.json.Decoder().decode


class PushEnd(StrEnum):
    """Why a push ended."""

    DONE = "done"
    STOPPED = "stopped"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LineForm:
    """How a line becomes a message: its key, split off at `separator` or the same for all."""

    separator: bytes | None = None
    key: bytes | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PushReport:
    """How many were stored, and where the `last` one is if all went well up to there.

    `reason` names the line that was refused, or says what failed.
    """

    topic: str
    end: PushEnd
    stored: int
    seconds: float
    last: str | None
    reason: str


def push_lines(
    topic: Topic[Any],
    lines: Iterable[bytes],
    form: LineForm,
    progress: Callable[[int], None] = lambda _count: None,
) -> PushReport:
    """Push each line, in order, up to the first that does not fit; all before it are stored.

    The same where `lines` raises `KeyboardInterrupt`. A failure of the hub ends it too, with those
    stored that were acknowledged before.
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
    """A line that does not fit; says which, and why."""


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
            raise _Refused(f"{type(error).__name__}: line {number}: {error}") from error
        if number % PROGRESS_EVERY == 0:
            progress(number)


def _split(line: bytes, form: LineForm) -> tuple[bytes | None, bytes]:
    if form.separator is None:
        return form.key, line
    key, found, value = line.partition(form.separator)
    if not found:
        shown = form.separator.decode("utf-8", "backslashreplace")
        raise InvalidValue("the line", line[:40], f"KEY{shown}VALUE")
    return key, value


def _parser(topic: Topic[Any]) -> Callable[[bytes], Any]:
    """What makes a value of a line. None for an empty line between JSON documents."""
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
            f"not JSON, which this topic holds: {error}",
            "lines of text need another topic: tailrace topic create NAME --type text",
        ) from error
    return msgspec.Raw(line)


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise EncodeError(f"not UTF-8, which this topic holds: {error}") from error
