"""The package in which Spark finds the data source `tailrace`, by the name of the package.

Spark imports every package with such a name, for every query. So this package never raises: if
something is missing, only a query that uses the data source `tailrace` fails.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

_reason = ""
try:
    from tailrace.spark.source import TailraceSource as DefaultSource
except Exception as error:
    _reason = f"{type(error).__name__}: {error}"
    with contextlib.suppress(Exception):
        from pyspark.sql.datasource import DataSource

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """Replaces the data source if it cannot be loaded, and raises the reason."""

            def __init__(self, options: Any) -> None:
                raise ImportError(
                    f"{sys.executable} cannot load the data source tailrace: {_reason} · set"
                    " PYSPARK_PYTHON to a Python that has it, before the Spark session starts,"
                    " or call tailrace.spark.register(spark) afterwards"
                )

            @classmethod
            def name(cls) -> str:
                """The name for ``format("tailrace")``."""
                return "tailrace"
