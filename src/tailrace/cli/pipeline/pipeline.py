"""`tailrace pipeline`: run and inspect pipelines, and repair their writers."""

from __future__ import annotations

from tailrace.cli.command import Noun
from tailrace.cli.pipeline.changes import ack, forget, retry, rewind
from tailrace.cli.pipeline.init import init
from tailrace.cli.pipeline.log import log
from tailrace.cli.pipeline.run import run
from tailrace.cli.pipeline.status import status
from tailrace.cli.pipeline.trial import test

pipeline_command = Noun(
    "pipeline",
    [init, test, run, status, log, retry, ack, rewind, forget],
    help="Run and inspect pipelines, and repair their writers.",
)
