"""What an error of a writer means: a record, an outage, a refusal, or a newer attempt.

The class of the error decides, never its text. A report carries the decision from an executor to
the driver.
"""

from __future__ import annotations

import errno
from enum import StrEnum
from typing import Final

from tailrace.errors import Fenced, HubClosed, UnknownTopic
from tailrace.pipeline.writer import SinkRefused
from tailrace.pipeline.writer_status import WaitsFor
from tailrace.spark.cluster.application import NoExecutors


class Fault(StrEnum):
    """The cause of an error of a writer."""

    RECORD = "a record"
    """A record is at fault, or may be: deliver one at a time to find it."""

    OUTAGE = "the sink cannot be reached"
    """No record is at fault, and a later try may succeed: wait."""

    REFUSAL = "the sink refuses the writer"
    """No record is at fault, and waiting does not help: an operator has to act."""

    FENCED = "a newer attempt has begun"


_OF_A_RECORD: Final = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP})
"""Errors of the operating system that the name of a file causes, and no retry changes."""


def fault_of(error: Exception) -> Fault:
    """Return the cause of an error that was raised while records were written."""
    if isinstance(error, Fenced):
        return Fault.FENCED
    # A closed hub stays closed: the process has to open it again.
    if isinstance(error, SinkRefused | HubClosed):
        return Fault.REFUSAL
    if isinstance(error, OSError):
        return Fault.RECORD if error.errno in _OF_A_RECORD else Fault.OUTAGE
    return Fault.OUTAGE if getattr(error, "retryable", False) else Fault.RECORD


def fault_without_records(error: Exception) -> Fault:
    """Return the cause of an error that was raised before or after records were written.

    No record can be at fault: an error that is no outage is a refusal.
    """
    fault = fault_of(error)
    return Fault.REFUSAL if fault is Fault.RECORD else fault


def waits_for(error: Exception) -> WaitsFor:
    """Return what a writer waits for after an error that is an outage."""
    return WaitsFor.EXECUTORS if isinstance(error, NoExecutors) else WaitsFor.SINK


def is_missing(error: Exception, topic: str) -> bool:
    """True if an error says that a topic, or a partition of it, does not exist."""
    return isinstance(error, UnknownTopic) and error.topic.partition("/")[0] == topic
