"""Checks of the simulator's arguments. Each raises `InvalidValue`, with the valid values, before a
run begins."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from math import isfinite
from typing import TypeGuard, TypeVar

from tailrace.amount import is_whole
from tailrace.errors import InvalidValue

K = TypeVar("K")
V = TypeVar("V")


def check_known(what: str, name: str, known: Collection[str], remedy: str) -> str:
    """Return the name if it is known."""
    if name not in known:
        valid = ", ".join(sorted(known)) if known else "none so far"
        raise InvalidValue(what, name, valid, remedy)
    return name


def check_seconds(what: str, seconds: object) -> None:
    """Check a number of seconds, 0 or more."""
    if not (_is_number(seconds) and seconds >= 0):
        raise InvalidValue(what, seconds, "seconds, 0 or more")


def check_span(what: str, span: object) -> None:
    """Check a pair of a minimum and a maximum number of seconds."""
    match span:
        case (least, most) if _is_number(least) and _is_number(most) and 0 <= least <= most:
            return
    raise InvalidValue(what, span, "(least, most) in seconds, each 0 or more")


def check_part(what: str, part: object) -> None:
    """Check a part of a whole, from 0 to 1."""
    if not (_is_number(part) and 0 <= part <= 1):
        raise InvalidValue(what, part, "0 to 1")


def check_pairs(what: str, pairs: Iterable[tuple[K, V]]) -> list[tuple[K, V]]:
    """Return the pairs of a key and a value as a list."""
    found = list(pairs)
    for pair in found:
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise InvalidValue(f"one of {what}", pair, "a tuple of a key, or None, and a value")
    return found


def check_count(what: str, count: object) -> None:
    """Check a whole number, 1 or more."""
    if not (is_whole(count) and count >= 1):
        raise InvalidValue(what, count, "a whole number, 1 or more")


def check_handler(handler: object) -> None:
    """Check a handler of deliveries: its time is simulated, so it must not be awaited."""
    if not callable(handler) or inspect.iscoroutinefunction(handler):
        valid = "a function that takes a delivery, and is not a coroutine function"
        raise InvalidValue("handler", handler, valid)


def check_callable(what: str, call: object, valid: str) -> None:
    """Check that a value can be called."""
    if not callable(call):
        raise InvalidValue(what, call, valid)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
