"""`tailrace version`: the versions of Tailrace and its dependencies."""

from __future__ import annotations

import click

import tailrace
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext

_PARTS = ("apsw", "click", "isal", "msgspec", "numpy", "pyarrow")


@verb(
    "version",
    examples="""
    tailrace version
    tailrace version -o json
    """,
)
@click.pass_obj
def version_command(context: CommandContext) -> None:
    """Show the versions of Tailrace, Python and its dependencies."""
    import platform
    from importlib.metadata import version

    versions = {
        "tailrace": tailrace.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _PARTS},
    }
    context.show(versions, lambda found: "\n".join(f"{name} {v}" for name, v in found.items()))
