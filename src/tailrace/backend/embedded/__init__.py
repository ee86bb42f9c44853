"""A hub as one directory of one host."""

from tailrace.backend.embedded.backend import EmbeddedBackend
from tailrace.backend.embedded.read_only import ReadOnlyBackend

__all__ = ["EmbeddedBackend", "ReadOnlyBackend"]
