"""Formats of messages: ``%k %v``, compiled to functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from tailrace.message import Message

MessageFormat = Callable[["Message[Any]"], bytes]

_FIELDS: Final[dict[str, MessageFormat]] = {
    "%k": lambda message: message.key_bytes or b"",
    "%v": lambda message: message.data,
    "%p": lambda message: str(message.id).rpartition("@")[0].encode(),
    "%o": lambda message: str(message.offset).encode(),
    "%m": lambda message: message.mode.name.lower().encode(),
    "%c": lambda message: message.op.name.lower().encode(),
    "%t": lambda message: message.timestamp.isoformat(timespec="milliseconds").encode(),
    "%h": lambda message: b",".join(
        name.encode() + b"=" + value for name, value in message.headers.items()
    ),
    "%%": lambda _message: b"%",
}
_ESCAPES: Final = {r"\n": b"\n", r"\t": b"\t", r"\0": b"\0", r"\\": b"\\"}
_TOKEN: Final = re.compile(r"%.?|\\.?|[^%\\]+", re.DOTALL)


def compile_format(text: str) -> MessageFormat:
    r"""Compile a format. A format that does not end in `\n` or `\0` gets a `\n`."""
    parts: list[MessageFormat] = []
    tokens = _TOKEN.findall(text)
    for token in tokens:
        if token[0] == "%":
            if token not in _FIELDS:
                raise click.BadParameter(f"{token} is not one of {' '.join(_FIELDS)}")
            parts.append(_FIELDS[token])
            continue
        if token[0] == "\\" and token not in _ESCAPES:
            raise click.BadParameter(rf"{token} is not one of {' '.join(_ESCAPES)}")
        parts.append(_constant(_ESCAPES.get(token, token.encode())))
    if not tokens or tokens[-1] not in (r"\n", r"\0"):
        parts.append(_constant(b"\n"))
    return lambda message: b"".join([part(message) for part in parts])


def _constant(data: bytes) -> MessageFormat:
    return lambda _message: data
