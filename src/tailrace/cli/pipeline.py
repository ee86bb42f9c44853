"""`tailrace pipeline`: run and inspect pipelines, and repair their writers."""

from __future__ import annotations

from tailrace.cli.command import Noun
from tailrace.cli.pipeline_changes import ack, forget, retry, rewind
from tailrace.cli.pipeline_init import init
from tailrace.cli.pipeline_log import log
from tailrace.cli.pipeline_run import run
from tailrace.cli.pipeline_status import status
from tailrace.cli.pipeline_test import test

pipeline_command = Noun(
    "pipeline",
    [init, test, run, status, log, retry, ack, rewind, forget],
    help="Run and inspect pipelines, and repair their writers.",
)
