"""The settings of a Spark session: the user's over Spark's configuration over ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MASTER: Final = "spark.master"
LOCAL: Final = "local[*]"
"""The master if Spark is configured with none."""

CORES_MAX: Final = 4
"""The number of cores that a session takes of a standalone cluster, unless it is configured.
Without a limit Spark takes all cores, and other applications get none."""

ARROW_OPTIONS: Final = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)
"""Options of Java that turn off Arrow's check of the bounds of every access. Reads by Python took
4 % to 21 % less processor time without it."""

_DEFAULTS: Final = {
    "spark.executor.defaultJavaOptions": ARROW_OPTIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # How long a query without new data waits before it polls again. With Spark's default of 10 ms,
    # a few idle queries keep a processor busy.
    "spark.sql.streaming.pollingDelay": "50ms",
    # Spark keeps less history for its web pages, so that the driver's memory does not grow.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "50",
    # The number of ports that are tried for the web page and others. With Spark's default of 16,
    # the 18th session on a host does not start.
    "spark.port.maxRetries": "1000",
}
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_STARTED_BY_DRIVER: Final = re.compile(r"local(-cluster)?(\[.*\])?")
_ON_THIS_HOST: Final = re.compile(
    rf"{_STARTED_BY_DRIVER.pattern}|spark://(127\.0\.0\.1|localhost):[0-9]+"
)
_WITHOUT_TRIES: Final = re.compile(r"local(?:\[([^],]+)\])?")


def session_settings(
    app: str,
    configured: Mapping[str, str],
    given: Mapping[str, str],
    task_tries: int,
    of_this_user: Mapping[str, str],
) -> dict[str, str]:
    """Return all settings of a new session.

    `given` are those of the user, `configured` those of Spark's own configuration, and
    `of_this_user` defaults that hold only if the driver starts the workers. The workers of a
    standalone cluster may have another user or another ``/tmp``, also on this host. In local mode,
    where Spark tries each task once, tasks get `task_tries`.
    """
    chosen = {MASTER: LOCAL, **configured, "spark.app.name": app, **given}
    master = chosen[MASTER]
    defaults = dict(_DEFAULTS)
    if is_on_this_host(master):
        defaults |= _LOOPBACK
    if _STARTED_BY_DRIVER.fullmatch(master) is not None:
        defaults |= of_this_user
    if master.startswith("spark://"):
        defaults["spark.cores.max"] = str(CORES_MAX)
    return defaults | chosen | {MASTER: with_tries(master, task_tries)}


def is_on_this_host(master: str) -> bool:
    """True if the workers of a master are on the host of the driver."""
    return _ON_THIS_HOST.fullmatch(master) is not None


def is_local(master: str) -> bool:
    """True if the driver itself runs the tasks."""
    return master == "local" or master.startswith("local[")


def with_tries(master: str, tries: int) -> str:
    """Return a local master that tries each task more than once, unless it says how often."""
    found = _WITHOUT_TRIES.fullmatch(master)
    return master if found is None or tries == 1 else f"local[{found[1] or 1},{tries}]"


def ignored_settings(given: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """Return the settings, as ``name=value``, that a session which exists already does not have."""
    return [f"{name}={value}" for name, value in given.items() if actual.get(name) != value]
