"""Arguments and options that several commands share, with their completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from tailrace.cli.context import CommandContext

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Decorator = Callable[[Any], Any]


def _completing(names_of: Callable[[Hub], Iterable[str]]) -> Complete:
    """Return a completion of names in the hub. Without a hub it completes nothing."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with context.ensure_object(CommandContext).open_to_read() as hub:
                names = list(names_of(hub))
        except Exception:  # an error must not disturb the shell
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


def _groups(hub: Hub) -> list[str]:
    from tailrace.group.store.definition import group_names

    return group_names(hub.backend)


def _pipelines(hub: Hub) -> list[str]:
    from tailrace.pipeline.catalog import pipelines

    return [each.name for each in pipelines(hub.backend.store)]


def _writers(hub: Hub) -> list[str]:
    from tailrace.operations.pipeline.lookup import writer_names

    return writer_names(hub)


def _sources(hub: Hub) -> list[str]:
    from tailrace.source.catalog import source_names

    return source_names(hub.backend.store)


def _subscriptions(hub: Hub) -> list[str]:
    return hub.subscriptions()


def _queues(hub: Hub) -> list[str]:
    return hub.queues()


complete_topic: Final = _completing(lambda hub: hub.topics())
complete_group: Final = _completing(_groups)
complete_pipeline: Final = _completing(_pipelines)
complete_writer: Final = _completing(_writers)
complete_subscription: Final = _completing(_subscriptions)
complete_lagging: Final = _completing(lambda hub: [*_groups(hub), *_subscriptions(hub)])
complete_explained: Final = _completing(
    lambda hub: [
        *hub.topics(),
        *_groups(hub),
        *_subscriptions(hub),
        *_pipelines(hub),
        *_writers(hub),
        *_sources(hub),
    ]
)

topic_argument: Final[Decorator] = click.argument("topic", shell_complete=complete_topic)
group_argument: Final[Decorator] = click.argument("group", shell_complete=complete_group)
subscription_argument: Final[Decorator] = click.argument(
    "subscription", shell_complete=complete_subscription
)
queue_argument: Final[Decorator] = click.argument("queue", shell_complete=_completing(_queues))

complete_source: Final = _completing(_sources)
source_argument: Final[Decorator] = click.argument("source", shell_complete=complete_source)

writer_argument: Final[Decorator] = click.argument("writer", shell_complete=complete_writer)
"""`WRITER`, such as lake/crm."""

consumer_argument: Final[Decorator] = click.argument(
    "consumer",
    shell_complete=_completing(
        lambda hub: [
            *_subscriptions(hub),
            *_pipelines(hub),
            *_writers(hub),
            *_sources(hub),
            *hub.groups(),
        ]
    ),
)
"""`CONSUMER`: a subscription, a writer, a group, a source, or a pipeline for all its writers and
its reader."""

any_count_option: Final[Decorator] = click.option(
    "--any-count",
    is_flag=True,
    help="Allow partition counts other than 1, 2, 3 and multiples of 4 and 6.",
)

optional_reason: Final[Decorator] = click.option(
    "--reason", default="", help="Reason, stored in the audit."
)
required_reason: Final[Decorator] = click.option(
    "--reason", required=True, metavar="TEXT", help="Reason, stored in the audit."
)


def count_option(default: int) -> Decorator:
    """Return the option ``-n`` that limits the number of entries shown."""
    return click.option(
        "-n",
        "--count",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="Maximum number of entries to show.",
    )
