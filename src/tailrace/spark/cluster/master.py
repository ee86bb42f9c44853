"""A check that a master can be reached. Spark itself tries for a minute before it says so."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from tailrace.errors import BackendUnavailable, ConfigError

CONNECT_S: Final = 4.0
"""How long a master may take to accept a connection."""

ANSWER_S: Final = 8.0
"""How long a master may take to answer."""

_HOSTS_MAX: Final = 3
"""The number of hosts of one master URL that are tried."""

_URL: Final = re.compile(r"(spark|k8s)://(?:https?://)?([^/]+)")
_PORTS: Final = {"spark": 7077, "k8s": 443}
_NAME: Final = "Master"


def check_address(master: str) -> None:
    """Raise `BackendUnavailable` if no host of a master accepts connections.

    `ConfigError` for a bad URL. Standalone masters and the API servers of Kubernetes are checked.
    Other masters have no address in their URL.
    """
    _check(master, _connect)


def check_master(master: str, within_s: float = ANSWER_S) -> None:
    """Raise `BackendUnavailable` if no host answers as a standalone master. Java must run."""
    if master.startswith("spark://"):
        _check(master, partial(_ask, within_s))


def _check(master: str, reason_of: Callable[[str, int], str | None]) -> None:
    found = _URL.match(master)
    if found is None:
        return
    reasons = []
    for host, port in _addresses(master, found[1], found[2])[:_HOSTS_MAX]:
        reason = reason_of(host, port)
        if reason is None:
            return
        reasons.append(f"{host}:{port} {reason}")
    raise BackendUnavailable(
        f"cannot reach the Spark master {master}: {', '.join(reasons)}",
        "start the master, or set another one with --master, master= or spark.master",
    )


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
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except socket.gaierror as error:
        return f"is an unknown host ({error.strerror})"
    except TimeoutError:
        return f"does not answer within {CONNECT_S:g} s"
    except (OSError, OverflowError) as error:
        return f"refuses the connection ({getattr(error, 'strerror', None) or error})"
    return None


def _ask(within_s: float, host: str, port: int) -> str | None:
    """Return why the process at an address is no master of this Spark; None if it is one.

    Other processes accept connections too, such as the web server of the master. None as well if
    this release of Spark has no such question.
    """
    from pyspark import SparkConf, SparkContext

    jvm: Any = SparkContext._jvm
    spark: Any = jvm.org.apache.spark
    conf = SparkConf()
    for name in ("lookupTimeout", "askTimeout", "io.connectionTimeout"):
        conf.set(f"spark.rpc.{name}", f"{within_s * 1000:.0f}ms")
    try:
        secret_file = getattr(spark.SecurityManager, "$lessinit$greater$default$3")()
        security = spark.SecurityManager(conf._jconf, jvm.scala.Option.apply(None), secret_file)
        env = spark.rpc.RpcEnv.create("check", "localhost", -1, conf._jconf, security, True)
        address = spark.rpc.RpcAddress(host, port)
    except Exception:
        return None
    try:
        env.setupEndpointRef(address, _NAME)
    except Exception:
        return f"does not answer as a master of this version of Spark within {within_s:.0f} s"
    finally:
        with suppress(Exception):
            env.shutdown()
    return None
