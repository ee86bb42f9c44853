"""Jars of peers that are Java: fetched once by Maven, by the `pom.xml` of each."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from bench.measure import say

_POMS = Path(__file__).parents[1] / "jars"
CACHE = Path(__file__).parents[2] / "build" / "bench"
_FETCH_SECONDS_MAX = 600


class Unavailable(Exception):
    """Raised with the reason when a peer is not available here."""


def fetch(name: str) -> Path:
    """The directory with all jars of `bench/jars/NAME/pom.xml`; `Unavailable` says what is missing.

    What Maven says of a failure goes to the terminal only: it names places of this machine.
    """
    pom = _POMS / name / "pom.xml"
    found = CACHE / f"{name}-{sha256(pom.read_bytes()).hexdigest()[:12]}"
    if found.is_dir():
        return found
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"its jars ({name}) are fetched by Maven, which is not installed")
    say(f"fetching the jars of {name}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as directory:
        part = Path(directory) / "jars"
        try:
            _copy(maven, pom, part)
        except (subprocess.SubprocessError, OSError) as error:
            raise Unavailable(f"Maven could not fetch its jars ({name}): see its output") from error
        part.rename(found)
    return found


def _copy(maven: str, pom: Path, directory: Path) -> None:
    """Let Maven put the jars of a `pom.xml` there, and fail on a checksum that does not fit."""
    options = ["-q", "-B", "-C", "-Dstyle.color=never", "-DincludeScope=runtime", "-f", str(pom)]
    subprocess.run(
        [maven, *options, f"-DoutputDirectory={directory}", "dependency:copy-dependencies"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        timeout=_FETCH_SECONDS_MAX,
    )
