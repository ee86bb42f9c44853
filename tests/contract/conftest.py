"""Fixtures of the contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.backend.contract import Backend
from tests.support.backends import KINDS, open_backend


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Each backend in turn, empty."""
    opened = open_backend(request.param, tmp_path / "hub")
    yield opened
    opened.close()
