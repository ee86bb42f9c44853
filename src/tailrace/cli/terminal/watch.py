"""Repeating the output of a command until Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from tailrace.cli.terminal.broken_pipe import wait_for_closed_pipe

INTERVAL_S: Final = 2.0
"""Seconds between two outputs."""

F = TypeVar("F", bound=Callable[..., Any])


def watches(function: F) -> F:
    """Add the option ``--watch`` to a command."""
    return click.option("--watch", is_flag=True, help="Repeat every 2 s until Ctrl-C.")(function)


def show_once_or_watch(show: Callable[[], None], *, watch: bool) -> None:
    """Show once, or repeatedly until Ctrl-C. A terminal is cleared before each output."""
    show()
    try:
        while watch:
            sys.stdout.flush()
            wait_for_closed_pipe(INTERVAL_S)
            if sys.stdout.isatty():
                click.clear()
            show()
    except KeyboardInterrupt:
        return
