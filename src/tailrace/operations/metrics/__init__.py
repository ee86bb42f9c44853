"""Metrics and health: what the parts of a process report, and what is read of the hub."""
