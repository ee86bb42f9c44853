"""A hub as one directory of one host."""

from tailrace.backend.embedded.backend import EmbeddedBackend

__all__ = ["EmbeddedBackend"]
