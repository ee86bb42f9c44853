"""Spark finds the data source `tailrace` here, by the name of this package.

Spark imports every package named like this one, whatever it was asked for, so nothing is raised
here: if something is missing, whoever asks for this data source is told.
"""

from __future__ import annotations

import contextlib
from typing import Any

_reason = ""
try:
    from tailrace.spark.source import TailraceSource as DefaultSource
except Exception as error:
    _reason = f"{type(error).__name__}: {error}"
    with contextlib.suppress(Exception):
        from pyspark.sql.datasource import DataSource

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """Stands for the data source where it cannot be loaded, and says why."""

            def __init__(self, options: Any) -> None:
                raise ImportError(f"the data source tailrace cannot be loaded: {_reason}")

            @classmethod
            def name(cls) -> str:
                """What people write in ``format("tailrace")``."""
                return "tailrace"
