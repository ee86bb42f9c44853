"""A real Prometheus for tests: found or installed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers.apt import install
from tests.support.servers.shared import Prepared, start, stop


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`; `Unavailable` without it."""
    if shutil.which(name) is None:
        install("Prometheus", "prometheus")
    found = shutil.which(name)
    assert found is not None
    return found


class Prometheus:
    """A Prometheus that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def alerts(self) -> dict[str, str]:
        """Return the state of each active alert, ``pending`` or ``firing``, by its name."""
        found = self._get("/api/v1/alerts")["alerts"]
        return {each["labels"]["alertname"]: each["state"] for each in found}

    def query(self, expression: str) -> list[float]:
        """Return the present values of an expression."""
        found = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        return [float(each["value"][1]) for each in found["result"]]

    def targets(self) -> dict[str, str]:
        """Return the health of each target, by its address; and its error, if it has one."""
        found = self._get("/api/v1/targets")["activeTargets"]
        return {each["labels"]["instance"]: each["lastError"] or each["health"] for each in found}

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._url + path, timeout=60) as answer:
            return json.loads(answer.read())["data"]


@contextmanager
def own_prometheus(directory: Path) -> Iterator[Prometheus]:
    """A Prometheus with the `prometheus.yml` in a directory, which also has its data."""
    path = program("prometheus")

    def command(port: int) -> list[str]:
        return [
            path,
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]

    def is_ready(port: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    process, port = start(directory, Prepared(command, is_ready, signal.SIGTERM))
    try:
        yield Prometheus(port)
    finally:
        stop(process, signal.SIGTERM)


def promtool(*arguments: str) -> str:
    """Run `promtool`, and return what it prints; fails if it fails."""
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
