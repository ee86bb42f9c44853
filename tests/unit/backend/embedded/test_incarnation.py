"""Offsets of topics created after a restart of the machine."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.hub.hub import Hub


def _hub(directory: Path, boot: str) -> Hub:
    return Hub.from_backend(EmbeddedBackend.open(directory, sync="none", boot=boot))


def test_a_topic_lost_in_a_crash_and_created_again_gives_no_offset_twice(
    tmp_path: Path,
) -> None:
    live, saved = tmp_path / "live", tmp_path / "saved"
    with closing(_hub(live, "first")) as hub:
        hub.create_topic("old", bytes, partitions=1).push(b"x")
    shutil.copytree(live, saved)
    with closing(_hub(live, "first")) as hub:
        receipts = [
            hub.create_topic("new", bytes, partitions=1).push(b"lost").id,
            hub.topic("old", bytes).push(b"lost").id,
        ]
        hub.topic("old").scale(2)
        receipts.append(hub.topic("old", bytes).push(b"lost", key="k").id)
    with closing(_hub(saved, "second")) as hub:
        assert hub.topics() == ["old"]
        given = [
            hub.create_topic("new", bytes, partitions=1).push(b"y").id,
            hub.topic("old", bytes).push(b"y").id,
        ]
        hub.topic("old").scale(2)
        given.append(hub.topic("old", bytes).push(b"y", key="k").id)
        assert not set(receipts) & set(given)
        reader = hub.topic("new").reader()
        assert [read.records["value"].to_pylist() for read in reader.poll()] == [[b"y"]]
        assert reader.poll() == []
