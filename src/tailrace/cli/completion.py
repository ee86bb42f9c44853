"""`tailrace completion`: shell completion of commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tailrace.cli.command import verb


@verb(
    "completion",
    examples="""
    tailrace completion bash >> ~/.bashrc
    tailrace completion zsh >> ~/.zshrc
    tailrace completion fish > ~/.config/fish/completions/tailrace.fish
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "tailrace", "_TAILRACE_COMPLETE")
    click.echo(script.source())
