"""A file to follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.readers.file.followed_files import lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.jsonl"
    path.write_text(lines(1, 2))
    return path
