"""What this machine lacks to run Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from tailrace.errors import ConfigError
from tailrace.spark.java import RELEASE_MIN, find_java


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that Spark needs and that is not installed, and how to install it."""

    what: str
    install: str


def missing_for_spark(environment: Mapping[str, str] = os.environ) -> Missing | None:
    """Return what is missing to run Spark; None if nothing is. Does not start Spark."""
    if find_spec("pyspark") is None:
        return Missing("Spark is not installed", "pip install 'tailrace[spark]'")
    try:
        find_java(environment)
    except ConfigError:
        install = f"install a JDK {RELEASE_MIN}, or: pip install 'tailrace[java]'"
        return Missing(f"Java {RELEASE_MIN} or newer is not installed", install)
    return None
