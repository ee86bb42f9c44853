"""Settings in Spark's own configuration, read before Java runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_FILE: Final = "spark-defaults.conf"
_LINE: Final = re.compile(r"\s*([^\s=:#]+)(?:\s*[=:]\s*|\s+)(.*?)\s*")


def default_setting(name: str, environment: Mapping[str, str]) -> str:
    """Return a setting of ``spark-defaults.conf``; an empty text if it is not there.

    This is only for what must be known before Java starts: Spark itself decides which settings
    hold.
    """
    found = ""
    try:
        lines = (_directory(environment) / _FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return found
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is not None and match[1] == name:
            found = match[2]
    return found


def _directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of Spark's configuration, as Spark's scripts find it."""
    if chosen := environment.get("SPARK_CONF_DIR"):
        return Path(chosen)
    if home := environment.get("SPARK_HOME"):
        return Path(home, "conf")
    spec = find_spec("pyspark")
    return Path(spec.origin if spec and spec.origin else "").parent / "conf"
