"""Durable, re-scalable, ordered topics in one directory, shared by any number of processes."""

__version__ = "0.1.0"
