"""A hub over each backend, for the tests of the store of subscriptions."""

from __future__ import annotations

from tests.unit.group.store.conftest import backend, clock, hub

__all__ = ["backend", "clock", "hub"]
