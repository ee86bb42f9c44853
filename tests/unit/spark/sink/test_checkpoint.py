"""What identifies a batch in the checkpoint of a query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.spark.sink.checkpoint import batch_digest


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    (tmp_path / "offsets" / "7").write_text("v1\n{}\n1")
    return tmp_path


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}"])
def test_a_batch_has_the_digest_of_its_offsets(checkpoint: Path, form: str) -> None:
    location = form.format(checkpoint)
    digest = batch_digest(location, "q", 7)
    assert digest is not None
    assert batch_digest(location, "q", 7) == digest
    (checkpoint / "offsets" / "7").write_text("v1\n{}\n2")
    assert batch_digest(location, "q", 7) != digest


def test_a_checkpoint_that_does_not_tell_is_no_identity(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert batch_digest(str(checkpoint), "another", 7) is None
    assert "it belongs to query q" in caplog.text
    assert batch_digest(str(checkpoint), "q", 8) is None
    assert batch_digest(str(checkpoint / "nowhere"), "q", 7) is None
    assert batch_digest("unknown://host/checkpoint", "q", 7) is None
    assert "at least once" in caplog.text
