"""Executors whose Python does not start, or cannot run tasks of Tailrace.

Spark reports them only in the text of a failed job, which is the same for every Spark of a release:
``Lost task 0.3 in stage 0.0 (TID 3) (HOST executor 1): CLASS: MESSAGE``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.spark.cluster.application import NoExecutors
from tailrace.spark.worker_python import SETTING, VARIABLE

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOST: Final = re.compile(
    r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor \S+\): (.*)", re.S
)
_NO_PROGRAM: Final = re.compile(
    r'\S*IOException: Cannot run program ".*?"(?: \(in directory ".*?"\))?: (?:error=\d+, )?(.+)'
)
_NO_DAEMON: Final = re.compile(r"\S+: \nError from python worker:\n(.*?)\nPYTHONPATH was:", re.S)
_NO_PACKAGE: Final = re.compile(
    r"^(ModuleNotFoundError: No module named '(?:tailrace|pyarrow|msgspec)\b.*)$", re.M
)
_OTHER_VERSION: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (.+)")


class PythonFailure(NamedTuple):
    """The host of an executor, and why its Python cannot run tasks."""

    host: str
    reason: str


def python_failure(text: str) -> PythonFailure | None:
    """Return what the text of a failed job says about the Python of an executor.

    None if the job failed for another reason.
    """
    lost = _LOST.search(text)
    if lost is None:
        return None
    host, rest = lost.groups()
    if found := _NO_PROGRAM.match(rest):
        return PythonFailure(host, found[1].strip())
    if found := _NO_DAEMON.match(rest):
        _, _, last = found[1].strip().rpartition("\n")
        return PythonFailure(host, last.strip() or "it printed nothing")
    if found := _NO_PACKAGE.search(rest) or _OTHER_VERSION.search(rest):
        return PythonFailure(host, found[1].strip())
    return None


@contextmanager
def while_python_starts(context: SparkContext) -> Iterator[None]:
    """Raise `NoExecutors` instead of an error of the block, if the Python of an executor causes it.

    The error names the host, the Python, the reason and the remedy.
    """
    try:
        yield
    except NoExecutors:
        raise
    except Exception as error:
        failure = python_failure(str(error))
        if failure is None:
            raise
        raise NoExecutors(
            f"the executor on host {failure.host} cannot run the Python {context.pythonExec}: "
            f"{failure.reason}",
            "install it there with Tailrace, in the release of the driver's Python, or set "
            f"{SETTING} or {VARIABLE} to such a Python that every host has",
        ) from error
