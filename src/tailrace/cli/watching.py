"""Showing the same again and again, until Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from tailrace.cli.listening import wait_for_reader

INTERVAL_S: Final = 2.0
"""How long one look stands."""

F = TypeVar("F", bound=Callable[..., Any])


def watches(function: F) -> F:
    """Give a verb the option `--watch`."""
    return click.option("--watch", is_flag=True, help="Look again every 2 s, until Ctrl-C.")(
        function
    )


def show_once_or_watch(show: Callable[[], None], *, watch: bool) -> None:
    """Show once, or every few seconds on a cleared screen; output that is no screen goes on."""
    show()
    try:
        while watch:
            sys.stdout.flush()
            wait_for_reader(INTERVAL_S)
            if sys.stdout.isatty():
                click.clear()
            show()
    except KeyboardInterrupt:
        return
