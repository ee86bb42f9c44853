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


MODULE = """
import logging
import warnings
from tailrace import Pipeline, functions as fn, readers, writers
{before}

def logged(document):
    logging.getLogger("py4j.clientserver").error("no answer")
    try:
        raise ConnectionResetError("Connection reset by peer")
    except OSError:
        logging.exception("Exception while sending command.")  # As py4j does, at the root.
    warnings.warn("this is deprecated")
    return document

lake = Pipeline("lake", readers.file("sales.jsonl"))
lake.write("files", writers.file("out"), functions=[fn.python(logged)], engine="direct")
"""


def run_module(directory: Path, before: str) -> list[str]:
    """Run a pipeline of a module, one of whose libraries logs, and return its log."""
    (directory / "sales.jsonl").write_text('{"id": 1}\n')
    (directory / "lake.py").write_text(MODULE.format(before=before))
    return stderr_of(directory, "pipeline", "run", "lake:lake", "--once")


def test_the_log_records_and_warnings_of_other_libraries_are_json_too(tmp_path: Path) -> None:
    lines = map(json.loads, run_module(tmp_path, before=""))
    logged = {line["logger"]: line for line in lines if "level" in line}
    assert logged["py4j.clientserver"]["message"] == "no answer"
    assert logged["root"]["traceback"].endswith("Connection reset by peer")
    assert "this is deprecated" in logged["py.warnings"]["message"]


def test_a_module_that_configures_logging_logs_in_its_own_form(tmp_path: Path) -> None:
    lines = run_module(tmp_path, before='logging.basicConfig(format="ours: %(message)s")')
    assert "ours: no answer" in lines


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
