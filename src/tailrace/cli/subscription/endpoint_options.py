"""The options of an endpoint, which `create` and `update` have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import click

_OPTIONS: Final = (
    click.option("--endpoint", metavar="URL", help="Post the messages to this URL."),
    click.option(
        "--timeout",
        metavar="DURATION",
        help="A request to the endpoint that takes longer has failed.  [default: 30s]",
    ),
    click.option(
        "--secret",
        metavar="SECRET|file:PATH",
        help="Sign deliveries. Prefer file:PATH, which every worker reads; a plain secret is stored"
        " in the hub.",
    ),
    click.option(
        "--allow-private/--refuse-private",
        default=None,
        help="Deliver to addresses that are not public, or not.  [default: refuse]",
    ),
    click.option(
        "--retry-statuses",
        metavar="STATUSES|none",
        help="HTTP statuses to retry besides 408, 425, 429 and 5xx, such as 404,409.",
    ),
)

Command: TypeAlias = Callable[..., Any]

OPTION_NAMES: Final = "--endpoint, --timeout, --secret, --allow-private, --retry-statuses"


def endpoint_options(function: Command) -> Command:
    """Add the options of an endpoint to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
