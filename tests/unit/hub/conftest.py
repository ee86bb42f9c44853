"""The same hubs in memory as for the parts of a topic."""

from __future__ import annotations

from tests.unit.topic.conftest import backend, clock, hub, orders

__all__ = ["backend", "clock", "hub", "orders"]
