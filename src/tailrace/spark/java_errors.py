"""Errors of Java in Spark: which of them say that a system cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_OUTAGES: Final = (
    "java.io.IOException",
    "java.sql.SQLTransientException",
    "java.sql.SQLRecoverableException",
    "java.sql.SQLNonTransientConnectionException",
    "java.util.concurrent.TimeoutException",
)
_NO_OUTAGES: Final = ("java.io.ObjectStreamException", "java.io.EOFException")
"""Objects that cannot be serialized, and Python workers that crashed."""

_SQL_STATES: Final = ("08", "53", "57")
"""Classes of SQLSTATE: lost connections, lack of resources, and interventions of an operator."""

_CAUSES_MAX: Final = 50


def java_outage(error: BaseException) -> str | None:
    """Return the exception of Java, among the causes of an error, that is an outage.

    None if there is none. The class of an exception and its SQLSTATE decide, not its text.
    """
    for cause in _causes(error):
        if _is_outage(cause):
            return f"{cause.getClass().getName()}: {cause.getMessage()}"
    return None


def _causes(error: BaseException) -> Iterator[Any]:
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.getCause()


def _is_outage(cause: Any) -> bool:
    if any(_is_a(cause, name) for name in _NO_OUTAGES):
        return False
    if any(_is_a(cause, name) for name in _OUTAGES):
        return True
    state = cause.getSQLState() if _is_a(cause, "java.sql.SQLException") else None
    return str(state or "").startswith(_SQL_STATES)


def _is_a(cause: Any, name: str) -> bool:
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    return bool(jvm.java.lang.Class.forName(name).isInstance(cause))
