"""The number of repetitions of a test: few in `make test`, all in `make soak`.

A test that kills, flips, replays or pushes N times asks here for its N, so that the same test
serves both. One count can be set by hand while looking for a bug: `TAILRACE_COUNTS=kills=3`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def soaking(environ: Mapping[str, str] = os.environ) -> bool:
    """True if this run is a soak."""
    return environ.get("TAILRACE_SOAK") == "1"


def count(name: str, *, test: int, soak: int, environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of repetitions called `name`: `test` in a test run, `soak` in a soak.

    `TAILRACE_COUNTS` (`name=number`, separated by commas) overrides both.
    """
    chosen = dict(
        pair.split("=", 1) for pair in environ.get("TAILRACE_COUNTS", "").split(",") if pair
    )
    if name in chosen:
        return int(chosen[name])
    return soak if soaking(environ) else test
