"""Shared groups under simulation."""

from __future__ import annotations

from tailrace.testing.groups.world import Consumer, GroupWorld

__all__ = ["Consumer", "GroupWorld"]
