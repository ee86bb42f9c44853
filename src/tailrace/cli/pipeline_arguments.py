"""Arguments of the commands for pipelines, with what completes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from tailrace.cli.session import Session

if TYPE_CHECKING:
    from tailrace.hub import Hub


def _completing(
    names_of: Callable[[Hub], list[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with context.ensure_object(Session).open_hub() as hub:
                names = names_of(hub)
        except Exception:  # whatever is wrong, a shell that completes must not be disturbed
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


def _writers(hub: Hub) -> list[str]:
    from tailrace.operations.registered import writer_names

    return writer_names(hub)


def _pipelines(hub: Hub) -> list[str]:
    from tailrace.pipeline.registry import pipelines

    return [each.name for each in pipelines(hub.backend.store)]


complete_pipeline: Final = _completing(_pipelines)
complete_writer: Final = _completing(_writers)

writer_argument: Final[Callable[[Any], Any]] = click.argument(
    "writer", shell_complete=complete_writer
)
"""`WRITER`, such as lake/crm, completed from the hub."""

consumer_argument: Final[Callable[[Any], Any]] = click.argument(
    "consumer", shell_complete=_completing(lambda hub: [*_pipelines(hub), *_writers(hub)])
)
"""`CONSUMER`: a writer, or a pipeline for all of its own."""
