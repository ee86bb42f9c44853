"""The options of load control, of subscriptions and queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

_OPTIONS: Final = (
    click.option(
        "--concurrency-total",
        metavar="NUMBER|off",
        help="Maximum number of calls at a time over all workers.  [default: off]",
    ),
    click.option(
        "--breaker",
        metavar="BREAKER|on|off",
        help="Dead letters that pause the subscription.  [default: run=100,ratio=50%,window=10m]",
    ),
    click.option(
        "--throttle",
        metavar="SHARE|on|off",
        help="Failures in a second before fewer messages are called, as a share of the usual calls."
        "  [default: 10%]",
    ),
)


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of load control."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
