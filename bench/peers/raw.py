"""The lower bound: bytes written to a file, without any index."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bench.measure import Timer


def write(directory: Path, timer: Timer, pieces: Iterable[bytes], *, sync: bool) -> None:
    """Write pieces one after the other, each with an `fdatasync` on request."""
    descriptor = os.open(directory / "raw.log", os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        with timer.running():
            for piece in pieces:
                os.write(descriptor, piece)
                if sync:
                    os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
