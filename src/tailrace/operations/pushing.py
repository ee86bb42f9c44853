"""Pushing lines: each a message, checked against what the topic holds, and sent pipelined."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from tailrace.errors import EncodeError, InvalidValue, MessageTooLarge
from tailrace.operations.message_view import Form
from tailrace.topic.pending import Pending
from tailrace.topic.topic import Topic

PROGRESS_EVERY: Final = 1000
"""Progress is told after so many lines."""

_decode: Final = msgspec.json.Decoder().decode
_REFUSALS: Final = (EncodeError, InvalidValue, MessageTooLarge)


class PushEnd(StrEnum):
    """Why a push ended."""

    DONE = "done"
    STOPPED = "stopped"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class LineForm:
    """How a line becomes a message: its key, split off at `separator` or the same for all."""

    separator: bytes | None = None
    key: bytes | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PushReport:
    """What was stored, up to the `last` message; `reason` names the line that was refused."""

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
    """Push each line, in order. Ends at the first that does not fit, and at `KeyboardInterrupt`
    of `lines`; all lines before are stored then. Errors of the hub are raised.
    """
    parse = _parser(topic.view.definition.content_type)
    started = time.monotonic()
    end, reason = PushEnd.DONE, ""
    number = 0
    pending: Pending | None = None
    with topic.producer() as producer:
        try:
            for number, line in enumerate(lines, start=1):
                key, value = _split(line, form)
                parsed = parse(value)
                if parsed is not None:
                    pending = producer.push(parsed, key=key, headers=form.headers)
                if number % PROGRESS_EVERY == 0:
                    progress(number)
        except KeyboardInterrupt:
            end = PushEnd.STOPPED
        except _REFUSALS as error:
            end, reason = PushEnd.REFUSED, f"{type(error).__name__}: line {number}: {error}"
        producer.flush()
        stored = producer.last_number
    last = None if pending is None else pending.result().id
    return PushReport(topic.name, end, stored, time.monotonic() - started, last, reason)


def _split(line: bytes, form: LineForm) -> tuple[bytes | None, bytes]:
    if form.separator is None:
        return form.key, line
    key, found, value = line.partition(form.separator)
    if not found:
        shown = form.separator.decode("utf-8", "backslashreplace")
        raise InvalidValue("the line", line[:40], f"KEY{shown}VALUE")
    return key, value


def _parser(content_type: str) -> Callable[[bytes], Any]:
    """What makes a value of a line. None for an empty line between JSON documents."""
    form = Form.of_content_type(content_type)
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
