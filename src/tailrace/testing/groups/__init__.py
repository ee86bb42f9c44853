"""Shared groups under simulation."""

from __future__ import annotations

from tailrace.testing.groups.consumer import Consumer, SimulatedProcess
from tailrace.testing.groups.world import GroupWorld

__all__ = ["Consumer", "GroupWorld", "SimulatedProcess"]
