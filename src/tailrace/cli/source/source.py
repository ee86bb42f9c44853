"""`tailrace source`: run and inspect sources that tasks read."""

from __future__ import annotations

from tailrace.cli.command import Noun
from tailrace.cli.source.changes import forget
from tailrace.cli.source.history import history
from tailrace.cli.source.run import run
from tailrace.cli.source.status import status
from tailrace.cli.source.trial import test

source_command = Noun(
    "source",
    [test, run, status, history, forget],
    help="Run, inspect and forget sources that many tasks read.",
)
