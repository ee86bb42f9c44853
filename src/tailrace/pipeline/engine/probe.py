"""The question to every executor: which directories of the driver it shares.

A small Spark job runs more tasks than there are slots, again and again until each executor has
answered, for a limited time. Executors may join later: each task checks the directories again
before it uses them.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.pipeline.engine.shared_directory import SharedDirectory
from tailrace.pipeline.writing.placement import ExecutorAnswer
from tailrace.spark.cluster.application import NoExecutors
from tailrace.spark.cluster.executors import executors_of, limited_wait_for_executors

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger(__name__)

FIRST_PROBE_S: Final = 30.0
PROBE_S: Final = 10.0
"""How long all executors have time to answer, before a writer's first work and later. The first
answer of an executor includes the start of its Python workers."""

_TASKS_PER_SLOT: Final = 2
_TASK_S: Final = 0.1
"""How long a task of a probe takes at least, so that other executors get some of the tasks."""

_VISIBLE_S: Final = 5.0
"""How long the driver waits until it sees a file of an executor, as network file systems cache."""


@dataclass(frozen=True, slots=True)
class SharedDirectories:
    """The directories of a writer: the hub, where the segments of its log are, and the sink."""

    hub: SharedDirectory
    segments: str
    sink: SharedDirectory | None

    def hub_error(self) -> str | None:
        """Return why this process cannot read the records; None if it can."""
        error = self.hub.read_error()
        if error is not None:
            return error
        try:
            for file in Path(self.segments).glob("*/*.log"):
                with file.open("rb"):
                    return None
            os.scandir(self.segments).close()
        except FileNotFoundError:
            return None  # The log has no records yet.
        except OSError as failed:
            return failed.strerror or str(failed)
        return None


class ProbeResult(NamedTuple):
    """The answers to a probe, and the executors that were to answer."""

    answers: list[ExecutorAnswer]
    executors: frozenset[str]

    @property
    def is_complete(self) -> bool:
        """True if there are executors, and each has answered."""
        return 0 < len(self.executors) <= len(self.answers)


def ask_executors(
    context: SparkContext,
    directories: SharedDirectories,
    within_s: float,
    stopping: threading.Event,
) -> ProbeResult:
    """Return the answers of the executors, after about `within_s` at most.

    A session that allocates executors on demand gets its first ones for this job; `NoExecutors` if
    none starts. An executor that wrote a file which the driver does not see gets an error.
    """
    found: dict[tuple[str, int], ExecutorAnswer] = {}
    executors = executors_of(context)
    deadline = time.monotonic() + within_s
    while len(found) < max(1, len(executors)) and not stopping.is_set():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        for each in _ask(context, directories, left_s, stopping):
            found[each.host, each.process] = each
        executors = executors or executors_of(context)
    answers = [_seen(each, directories.sink) for each in found.values()]
    if directories.sink is not None:
        for each in answers:
            directories.sink.answer_file(each.host, each.process).unlink(missing_ok=True)
    return ProbeResult(answers, executors)


def _ask(
    context: SparkContext, directories: SharedDirectories, left_s: float, stopping: threading.Event
) -> list[ExecutorAnswer]:
    """Run one job of questions; cancel it when the time is over or the writer is to stop."""
    tag = f"tailrace-probe-{uuid.uuid4().hex}"
    slots = max(1, context.defaultParallelism)
    ended = threading.Event()
    watcher = threading.Thread(
        target=_cancel_when, args=(context, tag, left_s, stopping, ended), daemon=True
    )
    watcher.start()
    context.addJobTag(tag)
    try:
        tasks = context.parallelize(range(slots * _TASKS_PER_SLOT), slots * _TASKS_PER_SLOT)
        with limited_wait_for_executors(context):
            answers: list[ExecutorAnswer] = tasks.mapPartitions(
                partial(_answer, directories)
            ).collect()
    except NoExecutors:
        raise
    except Exception as error:
        _log.debug("a probe of the executors ended early: %s", error)
        return []
    finally:
        ended.set()
        context.removeJobTag(tag)
    return answers


def _cancel_when(
    context: SparkContext,
    tag: str,
    left_s: float,
    stopping: threading.Event,
    ended: threading.Event,
) -> None:
    deadline = time.monotonic() + left_s
    while not ended.wait(_TASK_S):
        if stopping.is_set() or time.monotonic() >= deadline:
            context.cancelJobsWithTag(tag)
            return


def _answer(directories: SharedDirectories, _tasks: Iterator[int]) -> Iterator[ExecutorAnswer]:
    """Answer for this executor, whose Python workers have one parent."""
    host, process = socket.gethostname(), os.getppid()
    sink = directories.sink
    time.sleep(_TASK_S)
    yield ExecutorAnswer(
        host,
        process,
        directories.hub_error(),
        None if sink is None else sink.write_error(host, process),
    )


def _seen(answer: ExecutorAnswer, sink: SharedDirectory | None) -> ExecutorAnswer:
    """Return the answer, with an error if the driver does not see the executor's file."""
    if sink is None or answer.sink_error is not None:
        return answer
    file = sink.answer_file(answer.host, answer.process)
    deadline = time.monotonic() + _VISIBLE_S
    while not file.exists():
        if time.monotonic() >= deadline:
            return answer._replace(sink_error="the driver does not see the files that it writes")
        time.sleep(_TASK_S)
    return answer
