"""Tailrace on Spark: a session, topics as a data source, and topics as frames.

The public names are loaded on first use, so that importing this package does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tailrace.spark.frames.native import native_jar_path
    from tailrace.spark.frames.read import read
    from tailrace.spark.reading.progress import lag
    from tailrace.spark.reading.registration import register

__all__ = ["lag", "native_jar_path", "read", "register"]

_HOMES: Final = {
    "lag": "tailrace.spark.reading.progress",
    "native_jar_path": "tailrace.spark.frames.native",
    "read": "tailrace.spark.frames.read",
    "register": "tailrace.spark.reading.registration",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
