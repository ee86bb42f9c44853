"""How far a long command is, on stderr, where somebody may be watching."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

INTERVAL_S: Final = 0.2
"""How often the line is written."""


@contextmanager
def progress(describe: Callable[[int, float], str]) -> Iterator[Callable[[int], None]]:
    """What a long operation calls with how much it has done; the line is cleared at the end.

    `describe` is given that, and the seconds so far. Without a terminal nothing is written.
    """
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    started = time.monotonic()
    due = started

    def tell(done: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + INTERVAL_S
            click.echo(f"\r{describe(done, now - started)}\x1b[K", err=True, nl=False)

    try:
        yield tell
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)
