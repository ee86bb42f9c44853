"""Arguments that several commands take, with what completes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from tailrace.cli.session import Session


def complete_topic(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The topics of the hub that begin so; none where there is no hub."""
    session = context.ensure_object(Session)
    try:
        with session.open_hub() as hub:
            return [CompletionItem(name) for name in hub.topics() if name.startswith(incomplete)]
    except Exception:  # whatever is wrong, a shell that completes must not be disturbed
        return []


topic_argument: Final[Callable[[Any], Any]] = click.argument("topic", shell_complete=complete_topic)
"""`TOPIC`, completed from the hub."""

any_count_option: Final[Callable[[Any], Any]] = click.option(
    "--any-count", is_flag=True, help="Allow counts beside 1, 2, 3 and multiples of 4 and 6."
)
