"""Offsets of what is created after the machine has started anew."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.hub import Hub


def _hub(directory: Path, boot: str) -> Hub:
    return Hub.from_backend(EmbeddedBackend.open(directory, sync="none", boot=boot))


def test_a_topic_that_a_crash_took_back_and_is_made_again_gives_no_offset_twice(
    tmp_path: Path,
) -> None:
    live, saved = tmp_path / "live", tmp_path / "saved"
    with closing(_hub(live, "first")) as hub:
        hub.create_topic("old", bytes, partitions=1).push(b"x")
    shutil.copytree(live, saved)
    with closing(_hub(live, "first")) as hub:
        told = [
            hub.create_topic("new", bytes, partitions=1).push(b"lost").id,
            hub.topic("old", bytes).push(b"lost").id,
        ]
        hub.topic("old").scale(2)
        told.append(hub.topic("old", bytes).push(b"lost", key="k").id)
    with closing(_hub(saved, "second")) as hub:
        assert hub.topics() == ["old"]
        given = [
            hub.create_topic("new", bytes, partitions=1).push(b"y").id,
            hub.topic("old", bytes).push(b"y").id,
        ]
        hub.topic("old").scale(2)
        given.append(hub.topic("old", bytes).push(b"y", key="k").id)
        assert not set(told) & set(given)
        reader = hub.topic("new").reader()
        assert [read.records["value"].to_pylist() for read in reader.poll()] == [[b"y"]]
        assert reader.poll() == []
