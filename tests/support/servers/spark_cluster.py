"""A real Spark cluster for tests: a standalone master and its workers, on free loopback ports.

Drivers of tests run in processes of their own, with the cluster's `environment`: a process has one
Spark context only. Every worker has a mount namespace of its own where the kernel allows it, so a
test can hide a directory from one worker and its executors, as on another host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import is_alive
from tests.support.servers.shared import ROOT, Unavailable, stop

_READY_S = 120.0
_PAUSE_S = 0.1
_STARTS_MAX = 3
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_CODE = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
"""Tailrace and the tests of this checkout, wherever the Python of the tests has Tailrace from."""
_OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


@contextmanager
def running_cluster(workers: int = 2, cores: int = 1) -> Iterator[SparkCluster]:
    """A cluster that is ready, stopped and removed afterwards; `Unavailable` without Java."""
    with tempfile.TemporaryDirectory(prefix="tailrace-cluster-") as directory:
        cluster = SparkCluster(Path(directory), cores)
        try:
            cluster.start()
            for _ in range(workers):
                cluster.add_worker()
            cluster.await_workers()
            yield cluster
        finally:
            cluster.stop()


class SparkCluster:
    """A standalone master and workers, each with a number of cores and 1 GiB for executors.

    A worker is known by its number, from 0. It keeps the number when it is started again.
    """

    def __init__(self, directory: Path, cores: int = 1) -> None:
        self._directory = directory
        self._cores = cores
        self._workers: list[subprocess.Popen[bytes]] = []
        self._conf = directory / "conf"
        self._conf.mkdir()
        lines = [f"{name} {value}\n" for name, value in self.options.items()]
        (self._conf / "spark-defaults.conf").write_text("".join(lines))
        self.url = ""
        self._web = 0
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> Mapping[str, str]:
        """The Spark settings of drivers, which `environment` has by default, without the master."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "700m",
            "spark.executorEnv.PYTHONPATH": _CODE,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The environment of drivers: the Python of this process, and `options` as defaults."""
        ours = {
            "SPARK_CONF_DIR": str(self._conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": _CODE,
        }
        return {**os.environ, **ours}

    @property
    def master_pid(self) -> int:
        """The process ID of the master."""
        assert self._master is not None
        return self._master.pid

    def worker_pid(self, worker: int) -> int:
        """The process ID of a worker."""
        return self._workers[worker].pid

    def executor_pids(self, worker: int | None = None) -> list[int]:
        """The process IDs of the executors of one worker, or of all."""
        chosen = self._workers if worker is None else [self._workers[worker]]
        found = [pid for each in chosen for pid in children_of(each.pid)]
        return [pid for pid in found if _EXECUTOR in _command(pid)]

    def python_pids(self, worker: int | None = None) -> list[int]:
        """The process IDs of Python daemons and workers below the executors."""
        daemons = [pid for each in self.executor_pids(worker) for pid in children_of(each)]
        return daemons + [pid for each in daemons for pid in children_of(each)]

    def add_worker(self) -> int:
        """Start one more worker, and return its number; `await_workers` waits until it is ready."""
        self._workers.append(self._start_worker(len(self._workers)))
        return len(self._workers) - 1

    def stop_worker(self, worker: int, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop a worker and its executors; with SIGKILL it dies, and its executors notice."""
        stop(self._workers[worker], how)

    def restart_worker(self, worker: int) -> None:
        """Start a worker again unless it runs, and wait until it is ready."""
        if self._workers[worker].poll() is not None:
            self._workers[worker] = self._start_worker(worker)
        self.await_workers()

    def await_workers(self) -> None:
        """Wait until exactly the workers that run are registered as alive."""
        running = sum(each.poll() is None for each in self._workers)
        self._wait(lambda: self.state().get("aliveworkers") == running, f"{running} workers")

    def await_idle(self) -> None:
        """Wait until no application of an earlier test runs and no executor is left."""
        self._wait(lambda: not (self.state()["activeapps"] or self.executor_pids()), "no executor")

    def state(self) -> dict[str, object]:
        """The state of the cluster as the master's web page has it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=10) as answer:
            state: dict[str, object] = json.load(answer)
            return state

    @contextmanager
    def hidden(self, directory: Path, worker: int) -> Iterator[None]:
        """Hide a directory from a worker and its executors, who see an empty one instead.

        `Unavailable` if the kernel does not let this process mount.
        """
        inside = ("nsenter", "--mount", "--target", str(self.worker_pid(worker)))
        if not _has_own_mounts():
            raise Unavailable("mount namespaces cannot be had here (they need root)")
        _call(*inside, "mount", "-t", "tmpfs", "tmpfs", str(directory))
        try:
            yield
        finally:
            if self._workers[worker].poll() is None:
                _call(*inside, "umount", "--lazy", str(directory))

    def stop(self) -> None:
        """Stop everything, executors first by their workers."""
        for each in self._workers:
            stop(each, signal.SIGTERM)
        if self._master is not None:
            stop(self._master, signal.SIGTERM)

    def start(self) -> None:
        """Start the master; `Unavailable` if that is not possible."""
        for _ in range(_STARTS_MAX):
            port, self._web = _free_ports(2)
            self.url = f"spark://127.0.0.1:{port}"
            try:
                self._start_master()
            except Unavailable as error:
                reason = error
            else:
                return
        raise reason

    def remove_applications(self) -> None:
        """Let the master remove all applications, as an operator does on its web page."""
        home = f"http://127.0.0.1:{self._web}/"
        with urllib.request.urlopen(home, timeout=10) as page:
            forms = re.findall(r'<form action="app/kill/".*?</form>', page.read().decode(), re.S)
        for form in forms:
            fields = re.findall(r'name="(\w+)" value="([^"]*)"', form)
            asked = urllib.parse.urlencode(fields).encode()
            urllib.request.urlopen(f"{home}app/kill/", asked, timeout=10).close()

    def restart_master(self) -> None:
        """Stop the master and start another at its address, which knows no application."""
        if self._master is not None:
            stop(self._master, signal.SIGTERM)
        self._start_master()
        self.await_workers()

    def _start_master(self) -> None:
        port = self.url.rpartition(":")[2]
        ports = ("--port", port, "--webui-port", str(self._web))
        self._master = self._start("master", (), _MASTER, "--host", "127.0.0.1", *ports)
        try:
            self._wait(lambda: self.state()["status"] == "ALIVE", "a master")
        except Unavailable:
            stop(self._master, signal.SIGTERM)
            raise

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        work = self._directory / f"worker-{number}"
        size = ("--cores", str(self._cores), "--memory", "1g", "--work-dir", str(work))
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        mounts = _OWN_MOUNTS if _has_own_mounts() else ()
        return self._start(f"worker-{number}", mounts, _WORKER, *ports, *size, self.url)

    def _start(self, name: str, before: Sequence[str], *command: str) -> subprocess.Popen[bytes]:
        import pyspark

        from tailrace.errors import ConfigError
        from tailrace.spark.java import find_java

        try:
            java = find_java().home
        except ConfigError as error:
            raise Unavailable(str(error)) from error
        home = Path(pyspark.__file__).parent
        ours = {
            "JAVA_HOME": str(java),
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*_until_we_end(), *before, str(home / "bin" / "spark-class"), *command],
                env=self.environment | ours,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Signals to the group of the tests do not end it.
            )

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self._master is None or self._master.poll() is not None:
                log = (self._directory / "master.log").read_text(errors="replace")
                raise Unavailable(f"Spark's master ended: {' '.join(log.splitlines()[-1:])}")
            try:
                if condition():
                    return
            except (OSError, ValueError):
                pass  # It does not listen yet, or serves no such page yet.
            time.sleep(_PAUSE_S)
        raise Unavailable(f"the Spark cluster did not get {what} in {_READY_S:g} s")


def children_of(pid: int) -> list[int]:
    """The process IDs of the living children of a process."""
    found = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in each.read_text().split()]
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def _until_we_end() -> tuple[str, ...]:
    """What in front of a command ends its process with this one, also if this one is killed."""
    return () if shutil.which("setpriv") is None else ("setpriv", "--pdeathsig", "TERM")


def _has_own_mounts() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter", "mount"))):
        return False
    tried = [*_OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for each in probes:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in probes]
    finally:
        for each in probes:
            each.close()
