"""`tailrace explain`: the state of a topic, consumer or message, and commands that help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import complete_explained
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext

if TYPE_CHECKING:
    from tailrace.operations.explanation import Explanation


@verb(
    "explain",
    examples="""
    tailrace explain orders
    tailrace explain billing
    tailrace explain jobs
    tailrace explain mailer
    tailrace explain mailer --key c7
    tailrace explain orders/1.7
    tailrace explain orders/1.7@42
    tailrace explain lake
    tailrace explain lake/crm -o json
    tailrace explain shop
    """,
)
@click.argument(
    "subject",
    metavar="NAME|PARTITION|POSITION",
    shell_complete=complete_explained,
)
@click.option("--key", help="Explain this key of the subscription or queue NAME.")
@click.option("--group", "is_group", is_flag=True, help="The name is that of a group, not a topic.")
@click.option(
    "--subscription",
    "is_subscription",
    is_flag=True,
    help="The name is that of a subscription, not a topic or group.",
)
@click.pass_obj
def explain_command(
    context: CommandContext, subject: str, key: str | None, is_group: bool, is_subscription: bool
) -> None:
    """Explain the state of a topic, consumer, source or message.

    A consumer is a group, a subscription, a pipeline or a writer, such as lake/crm. The output has
    the state, size and lag, the owners, what is blocked and since when, and suggests commands that
    help. For a message, named by its position such as orders/1.7@42, it has what each consumer of
    the topic has done with the message, or what the message waits for. With --key it has what holds
    the messages of one key of a subscription.
    """
    from tailrace.operations.explain import explain
    from tailrace.operations.group.explain_group import explain_group
    from tailrace.operations.subscription.explain_key import explain_key
    from tailrace.operations.subscription.explain_subscription import explain_subscription

    if is_group and (is_subscription or key is not None):
        raise click.UsageError("--group and --subscription or --key cannot be combined")
    with context.open_hub() as hub:
        if key is not None:
            found = explain_key(hub, subject, key)
        elif is_subscription:
            found = explain_subscription(hub, subject)
        else:
            found = explain_group(hub, subject) if is_group else explain(hub, subject)
        context.show(found, _explanation_text)


def _explanation_text(found: Explanation) -> str:
    from tailrace.operations.explanation import fact_lines

    names = [fact.name for fact in found.facts] + [each.name for each in found.remedies]
    width = max(map(len, names), default=0)
    commands = max((len(each.command) for each in found.remedies), default=0)
    state, space, rest = found.headline.partition(" ")
    colour = "red" if found.waits else "green"
    lines = [f"{click.style(state, fg=colour, bold=True)}{space}{rest}"]
    lines += fact_lines(found.facts, width)
    for each in found.remedies:
        lines.append(f"  {each.name:<{width}}  {each.command:<{commands}}  {each.outcome}".rstrip())
    return "\n".join(lines)
