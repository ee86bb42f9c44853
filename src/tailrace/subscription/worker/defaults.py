"""The defaults of a worker's options. Commands show them without loading a worker."""

from __future__ import annotations

from typing import Final

CONCURRENCY: Final = 16
TIMEOUT: Final = "30s"
DRAIN_TIMEOUT: Final = "30s"
