"""Errors of Tailrace in Spark: one sentence, without the traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import ConfigError, Error


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Let Spark show a Tailrace error without its traceback. For a Python process of Spark.

    Such a process ends with its first error, so no other traceback is hidden. An `ImportError` is
    raised as an error that names the Python of the process.
    """
    try:
        yield
    except Error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
    except ImportError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise ConfigError(
            f"Spark runs {sys.executable}, which lacks a package that tailrace needs: {error}",
            "before the Spark session starts, set PYSPARK_PYTHON to the Python that has it: "
            'os.environ["PYSPARK_PYTHON"] = sys.executable',
            "or afterwards call tailrace.spark.register(spark)",
        ) from error
