"""A check that a master can be reached. Spark itself tries for a minute before it says so.

Before Java runs, a standalone master is asked for a file that it does not have. In the protocol of
Spark's network library, a message is its length with these 8 bytes, a byte for its type, and its
fields; a text is its length in 4 bytes, and its bytes. Spark answers this question without logging
it. Once Java runs, Spark itself asks if the process is a master.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from tailrace.errors import BackendUnavailable, ConfigError

CONNECT_S: Final = 4.0
"""How long a master may take to accept a connection."""

FIRST_ANSWER_S: Final = 6.0
"""How long a master may take to answer the first question, which needs no Java."""

ANSWER_S: Final = 8.0
"""How long a master may take to answer Spark."""

_HOSTS_MAX: Final = 3
"""The number of hosts of one master URL that are tried."""

_FORM: Final = re.compile(
    r"(spark|k8s)://.+|yarn|local(\[([0-9]+|\*)( *, *[0-9]+)?\])?|local-cluster\[.*\]"
)
_URL: Final = re.compile(r"(spark|k8s)://(?:https?://)?([^/]+)")
_PORTS: Final = {"spark": 7077, "k8s": 443}
_NAME: Final = "Master"
_MESSAGES: Final = "org.apache.spark.deploy.DeployMessages"
_FILE: Final = b"/files/tailrace"
_STREAM_REQUEST: Final = 6
_QUESTION: Final = struct.pack(
    f">qbi{len(_FILE)}s", 8 + 1 + 4 + len(_FILE), _STREAM_REQUEST, len(_FILE), _FILE
)


def check_address(master: str) -> None:
    """Raise `BackendUnavailable` if no host of a master accepts connections and answers.

    `ConfigError` for a bad URL. Standalone masters and the API servers of Kubernetes are checked.
    Other masters have no address in their URL. An empty text is no master.
    """
    if master and _FORM.fullmatch(master) is None:
        raise ConfigError(
            f"there is no Spark master {master!r}",
            f"valid: spark://HOST:{_PORTS['spark']}, yarn, k8s://https://HOST:PORT, local[*], "
            "or local[N] for N cores",
        )
    reason_of = _knock if master.startswith("spark://") else _connect
    _check(master, CONNECT_S + FIRST_ANSWER_S, reason_of)


def check_master(master: str, within_s: float = ANSWER_S) -> None:
    """Raise `BackendUnavailable` if no host answers as a standalone master. Java must run."""
    if master.startswith("spark://"):
        _check(master, 2 * within_s, partial(_ask, within_s))


def _check(master: str, within_s: float, reason_of: Callable[[str, int], str | None]) -> None:
    """Ask all hosts of a master at once. Names may take longer to resolve than there is time."""
    found = _URL.match(master)
    if found is None:
        return
    addresses = _addresses(master, found[1], found[2])[:_HOSTS_MAX]
    answers: SimpleQueue[tuple[tuple[str, int], str | None]] = SimpleQueue()
    for address in addresses:
        asking = partial(_put_reason, answers, address, reason_of)
        threading.Thread(target=asking, name="master", daemon=True).start()
    reasons = dict.fromkeys(addresses, f"does not answer within {within_s:.0f} s")
    deadline = time.monotonic() + within_s
    for _ in addresses:
        try:
            address, reason = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if reason is None:
            return
        reasons[address] = reason
    named = ", ".join(f"{host}:{port} {reason}" for (host, port), reason in reasons.items())
    raise BackendUnavailable(
        f"cannot reach the Spark master {master}: {named}",
        "start the master, or set another one with --master, master= or spark.master",
    )


def _put_reason(
    answers: SimpleQueue[tuple[tuple[str, int], str | None]],
    address: tuple[str, int],
    reason_of: Callable[[str, int], str | None],
) -> None:
    answers.put((address, reason_of(*address)))


def _addresses(master: str, kind: str, hosts: str) -> list[tuple[str, int]]:
    addresses = []
    for each in hosts.split(","):
        host, _, port = each.rpartition(":") if ":" in each else (each, "", str(_PORTS[kind]))
        if not host or not port.isdecimal():
            valid = f"valid: spark://HOST:{_PORTS['spark']}"
            raise ConfigError(f"the Spark master {master} has no valid address", valid)
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _connect(host: str, port: int) -> str | None:
    """Return why a connection is not possible; None if it is."""
    return _converse(host, port, _hang_up)


def _knock(host: str, port: int) -> str | None:
    """Return why the process at an address cannot be a master; None if it may be one."""
    return _converse(host, port, _await_answer)


def _hang_up(_connection: socket.socket) -> None:
    """Return None: a connection is enough."""


def _converse(host: str, port: int, then: Callable[[socket.socket], str | None]) -> str | None:
    """Connect. Return why that is not possible, else what `then` finds with the connection."""
    try:
        with socket.create_connection((host, port), CONNECT_S) as connection:
            return then(connection)
    except (socket.gaierror, UnicodeError) as error:  # A label may be empty or too long for DNS.
        return f"is an unknown host ({getattr(error, 'strerror', None) or error})"
    except TimeoutError:
        return f"does not answer within {CONNECT_S:g} s"
    except (OSError, OverflowError) as error:
        return f"refuses the connection ({getattr(error, 'strerror', None) or error})"


def _await_answer(connection: socket.socket) -> str | None:
    """Return why the process at the other end cannot be a master; None if it may be one.

    A master that expects encryption closes the connection.
    """
    connection.settimeout(FIRST_ANSWER_S)
    try:
        connection.sendall(_QUESTION)
        # All of it: a connection that is closed with bytes left is a warning in the master's log.
        answer = connection.recv(4096)
    except TimeoutError:
        return f"accepts connections, but does not answer within {FIRST_ANSWER_S:g} s"
    except OSError:
        return None
    return "is a web server and no master" if answer.startswith(b"HTTP/") else None


def _ask(within_s: float, host: str, port: int) -> str | None:
    """Return why the process at an address is no master of this Spark; None if it is one.

    Other processes accept connections too, such as the web server of the master. None as well if
    this release of Spark has no such question.
    """
    try:
        with _endpoint(host, port, within_s):
            return None
    except _NoMaster:
        return f"does not answer as a master of this version of Spark within {within_s:.0f} s"
    except Exception:
        return None


def is_forgotten(master: str, application: str) -> bool:
    """True if a standalone master works and has no application of this id. Java must run.

    A master that was restarted has none of its earlier applications, unless it recovers them.
    """
    found = _URL.match(master)
    if found is None or found[1] != "spark":
        return False
    addresses = _addresses(master, found[1], found[2])[:_HOSTS_MAX]
    return any(_lacks(application, host, port) for host, port in addresses)


def _lacks(application: str, host: str, port: int) -> bool:
    """True if the process at an address is the master that works, and lacks an application."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    deploy: Any = jvm.org.apache.spark.deploy
    try:
        question = getattr(getattr(deploy, "DeployMessages$RequestMasterState$"), "MODULE$")
        answer = jvm.java.lang.Class.forName(f"{_MESSAGES}$MasterStateResponse")
        with _endpoint(host, port, ANSWER_S) as endpoint:
            state = endpoint.askSync(question, jvm.scala.reflect.ClassTag.apply(answer))
        working = str(state.status().toString()) == "ALIVE"
        return working and application not in {str(each.id()) for each in state.activeApps()}
    except Exception:
        return False


class _NoMaster(Exception):
    """A process that does not answer as a master of this version of Spark."""


@contextmanager
def _endpoint(host: str, port: int, within_s: float) -> Iterator[Any]:
    """Yield the master at an address, to be asked by Spark's own protocol."""
    from pyspark import SparkConf, SparkContext

    jvm: Any = SparkContext._jvm
    spark: Any = jvm.org.apache.spark
    conf = SparkConf()
    for name in ("lookupTimeout", "askTimeout", "io.connectionTimeout"):
        conf.set(f"spark.rpc.{name}", f"{within_s * 1000:.0f}ms")
    secret_file = getattr(spark.SecurityManager, "$lessinit$greater$default$3")()
    security = spark.SecurityManager(conf._jconf, jvm.scala.Option.apply(None), secret_file)
    env = spark.rpc.RpcEnv.create("check", "localhost", -1, conf._jconf, security, True)
    address = spark.rpc.RpcAddress(host, port)
    try:
        try:
            endpoint = env.setupEndpointRef(address, _NAME)
        except Exception as error:
            raise _NoMaster from error
        yield endpoint
    finally:
        with suppress(Exception):
            env.shutdown()
