"""What a backend can do beyond the contract, and the error of one that cannot."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tailrace.backend.capabilities import (
    Compacts,
    HasSegments,
    InDirectory,
    compaction_of,
    segments_of,
)
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import NotSupported
from tailrace.testing import MemoryBackend


def test_a_hub_in_a_directory_has_segments_and_compacts_them(tmp_path: Path) -> None:
    backend = EmbeddedBackend.open(tmp_path / "hub", sync="none")
    log: HasSegments = backend.log
    compacting: Compacts = backend
    directory: InDirectory = backend
    assert segments_of(backend, "list segments") is log
    assert compaction_of(backend, "compact segments") is compacting
    assert isinstance(directory, InDirectory)
    backend.close()


def test_a_backend_in_memory_has_no_segments_and_its_error_says_so() -> None:
    backend = MemoryBackend("memory")
    assert not isinstance(backend, InDirectory)
    text = r"hub 'memory' cannot list segments: .*segment files · use a hub in a directory"
    with pytest.raises(NotSupported, match=text) as caught:
        segments_of(backend, "list segments")
    assert (caught.value.operation, caught.value.backend) == ("list segments", "memory")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(NotSupported, match="cannot compact segments"):
        compaction_of(backend, "compact segments")
