"""Reads of `hub.db` that fail."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.backend.embedded.read_only import ReadOnlyBackend, yielding_to_writer
from tailrace.errors import BackendUnavailable
from tests.support.open_files import no_more_open_files


def test_a_read_that_cannot_open_the_database_is_an_outage(tmp_path: Path) -> None:
    EmbeddedBackend.open(tmp_path).close()
    backend = ReadOnlyBackend.open(tmp_path)
    try:
        with no_more_open_files(), pytest.raises(BackendUnavailable, match="cannot be read"):
            backend.store.get("x")
        assert backend.store.get("x") is None
    finally:
        backend.close()


def test_a_hub_that_is_opened_read_only_while_a_writer_opens_it_does_not_stop_the_writer(
    tmp_path: Path,
) -> None:
    EmbeddedBackend.open(tmp_path).close()
    with yielding_to_writer(tmp_path):
        reading = ReadOnlyBackend.open(tmp_path)
        assert reading.store.get("x") is None
        connection = apsw.Connection(str(tmp_path / "hub.db"))
    try:
        connection.execute("BEGIN IMMEDIATE; COMMIT")
    finally:
        connection.close()
        reading.close()
