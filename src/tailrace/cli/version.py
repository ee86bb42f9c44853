"""`tailrace version`: which versions are at work."""

from __future__ import annotations

import click

import tailrace
from tailrace.cli.command import verb
from tailrace.cli.session import Session

_PARTS = ("apsw", "click", "isal", "msgspec", "numpy", "pyarrow")


@verb(
    "version",
    examples="""
    tailrace version
    tailrace version -o json
    """,
)
@click.pass_obj
def version_command(session: Session) -> None:
    """Show the versions of Tailrace and what it stands on."""
    import platform
    from importlib.metadata import version

    versions = {
        "tailrace": tailrace.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _PARTS},
    }
    session.show(versions, lambda found: "\n".join(f"{name} {v}" for name, v in found.items()))
