"""The backends that the suite runs for, by name."""

from __future__ import annotations

from pathlib import Path

from tailrace.backend.contract import Backend
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.testing import MemoryBackend

KINDS = ("memory", "memory-gaps", "embedded-none", "embedded-batch", "embedded-tiny")


def is_durable(kind: str) -> bool:
    """Whether what it holds is there again when it is opened again."""
    return kind.startswith("embedded")


def open_backend(kind: str, directory: Path) -> Backend:
    """A backend of that kind, new where the directory is empty."""
    match kind:
        case "memory":
            return MemoryBackend()
        case "memory-gaps":
            return MemoryBackend(gap_every=2)
        case "embedded-none":
            return EmbeddedBackend.open(directory, sync="none")
        case "embedded-batch":
            return EmbeddedBackend.open(directory, sync="batch")
        case "embedded-tiny":
            return EmbeddedBackend.open(directory, sync="none", segment_bytes=64)
    raise ValueError(kind)
