"""The Python that Spark runs: in its workers, and on the host of the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from tailrace.errors import ConfigError

VARIABLE: Final = "PYSPARK_PYTHON"
"""The environment variable by which users choose the Python of the workers."""

SETTING: Final = "spark.pyspark.python"
"""The setting of Spark by which users choose it; it is stronger than the variable."""

_DRIVER: Final = "PYSPARK_DRIVER_PYTHON"
"""The environment variable by which users start a notebook with Spark's own commands."""

_START_S: Final = 60.0
_PROBE: Final = "import sys, pyarrow, tailrace.hub.hub; print('%d.%d' % sys.version_info[:2])"


class WorkerPython(NamedTuple):
    """The Python of the workers: a path or a name, and the setting or variable that names it."""

    program: str
    named_by: str


def choose_python(settings: Mapping[str, str], environment: Mapping[str, str]) -> WorkerPython:
    """Return the Python of the workers: the user's choice, else the Python of this process.

    A session reads only the variable by itself, unless ``spark-submit`` has started its program.
    """
    if program := settings.get(SETTING):
        return WorkerPython(program, SETTING)
    return WorkerPython(environment.get(VARIABLE) or sys.executable, VARIABLE)


def check_python(python: WorkerPython, environment: Mapping[str, str]) -> None:
    """Check the Python that the user has chosen for workers on this host.

    `ConfigError` for a Python that cannot import Tailrace or has another version.
    """
    if python.program != sys.executable:
        _check(python, environment)


@contextmanager
def driver_python(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Let a Java process that is started in the block run the Python of this process.

    Java runs Python on the host of the driver too, for example to find data sources.
    """
    before = environment.get(_DRIVER)
    environment[_DRIVER] = sys.executable
    try:
        yield
    finally:
        del environment[_DRIVER]
        if before is not None:
            environment[_DRIVER] = before


def _check(python: WorkerPython, environment: Mapping[str, str]) -> None:
    try:
        answer = subprocess.run(
            [python.program, "-c", _PROBE],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=_START_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _refused(python, f"does not run: {error}") from error
    if answer.returncode:
        last = (answer.stderr.strip() or "unknown error").splitlines()[-1]
        raise _refused(python, f"cannot import tailrace: {last}")
    mine = "{}.{}".format(*sys.version_info[:2])
    if answer.stdout.strip() != mine:
        raise _refused(python, f"is Python {answer.stdout.strip()}, this process runs {mine}")


def _refused(python: WorkerPython, reason: str) -> ConfigError:
    program, named_by = python
    return ConfigError(
        f"{named_by} is {program!r}, which {reason}",
        f"unset {named_by}, or set it to {sys.executable}",
    )
