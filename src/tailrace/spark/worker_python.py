"""The Python that Spark runs: in its workers, and on the host of the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Final

from tailrace.errors import ConfigError

VARIABLE: Final = "PYSPARK_PYTHON"
"""The environment variable by which users choose the Python of the workers."""

_DRIVER: Final = "PYSPARK_DRIVER_PYTHON"
"""The environment variable by which users start a notebook with Spark's own commands."""

_START_S: Final = 60.0
_PROBE: Final = "import sys, pyarrow, tailrace.hub.hub; print('%d.%d' % sys.version_info[:2])"


def choose_python(environment: MutableMapping[str, str]) -> None:
    """Let workers run the Python of this process, unless the user has chosen another one."""
    environment.setdefault(VARIABLE, sys.executable)


def check_python(environment: MutableMapping[str, str]) -> None:
    """Check the Python that the user has chosen for workers on this host.

    `ConfigError` for a Python that cannot import Tailrace or has another version.
    """
    chosen = environment[VARIABLE]
    if chosen != sys.executable:
        _check(chosen, environment)


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


def _check(chosen: str, environment: MutableMapping[str, str]) -> None:
    try:
        answer = subprocess.run(
            [chosen, "-c", _PROBE],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=_START_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _refused(chosen, f"does not run: {error}") from error
    if answer.returncode:
        last = (answer.stderr.strip() or "unknown error").splitlines()[-1]
        raise _refused(chosen, f"cannot import tailrace: {last}")
    mine = "{}.{}".format(*sys.version_info[:2])
    if answer.stdout.strip() != mine:
        raise _refused(chosen, f"is Python {answer.stdout.strip()}, this process runs {mine}")


def _refused(chosen: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{VARIABLE} is {chosen!r}, which {reason}",
        f"unset {VARIABLE}, or set it to {sys.executable}",
    )
