"""Log records on standard error: text as other messages, JSON only beside lines of JSON."""

from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys
from pathlib import Path

import tailrace
from tailrace.cli.terminal.logs import TextLogFormatter


def stderr_of(directory: Path, *arguments: str) -> list[str]:
    """Run a command whose standard error is a pipe, and return its lines."""
    command = [sys.executable, "-m", "tailrace", "--hub", str(directory / "hub"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory)
    return done.stderr.splitlines()


def test_a_warning_of_a_command_run_by_hand_is_text(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub"):
        pass
    (warning,) = stderr_of(tmp_path, "tail", "no*", "--group", "mail", "--exit")
    assert warning.startswith("WARNING: ")
    assert "no*" in warning


def test_a_warning_of_a_pipeline_that_runs_without_a_terminal_is_json(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"id": 1}\n' * 100)
    (tmp_path / "sales.jsonl.gz").write_bytes(whole[:-4])
    (tmp_path / "lake.toml").write_text(
        '[pipeline]\nname = "lake"\nengine = "direct"\n'
        '[reader]\ntype = "file"\npath = "sales.jsonl.gz"\n'
        '[writer.files]\ntype = "file"\npath = "out"\n'
    )
    lines = stderr_of(tmp_path, "pipeline", "run", "lake.toml", "--once")
    (warning,) = (line for line in map(json.loads, lines) if "level" in line)
    assert "truncated" in warning["message"]


def test_the_error_of_a_handler_is_text_with_its_traceback_and_another_error_is_one_line() -> None:
    try:
        raise LookupError("no such warehouse")
    except LookupError as error:
        raised = error
    logger, formatter = logging.getLogger("tailrace"), TextLogFormatter()

    def shown(message: str) -> list[str]:
        info = (LookupError, raised, raised.__traceback__)
        record = logger.makeRecord("tailrace", logging.WARNING, "", 0, message, (), info)
        return formatter.format(record).splitlines()

    first, *traceback = shown("mailer: a message failed: LookupError: no such warehouse")
    assert first == "WARNING: mailer: a message failed: LookupError: no such warehouse"
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "LookupError: no such warehouse"
    assert shown("the worker ended") == [
        "WARNING: the worker ended: LookupError: no such warehouse"
    ]
