"""Every kind of backend that tests run on, by name."""

from __future__ import annotations

from pathlib import Path

from tailrace.backend.contract import Backend
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.testing import MemoryBackend

KINDS = ("memory", "memory-gaps", "embedded-none", "embedded-batch", "embedded-tiny")


def is_durable(kind: str) -> bool:
    """True if a backend of the kind keeps its data when it is closed."""
    return kind.startswith("embedded")


def open_backend(kind: str, directory: Path) -> Backend:
    """Open a backend of a kind, and create it if the directory is empty."""
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
