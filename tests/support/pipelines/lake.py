"""The pipeline ``lake`` in a hub, which tests run, stop and operate, and its sinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import tailrace
from tailrace.errors import PipelineFailed
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.pipeline.lookup import find_writer, read_ledger
from tailrace.pipeline.writing.writer_ledger import WriterLedger
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter, deliveries, set_bad

LOG = Partition("lake.commits", 0, 0)


@dataclass
class Lake:
    """A pipeline of `rows` numbers into recording writers, on the direct engine.

    Each writer has a directory of its own.
    """

    hub: Hub
    directory: Path
    writers: tuple[str, ...] = ("crm",)
    rows: int = 16
    namespaces: tuple[str, ...] = ("A",)
    options: dict[str, object] = field(default_factory=dict)

    def pipeline(self) -> tailrace.Pipeline:
        """Return the pipeline, and make the directories of its writers."""
        self.count_file.write_text(str(self.rows))
        reader = CountingReader(namespaces=self.namespaces, rows_file=str(self.count_file))
        lake = tailrace.Pipeline("lake", reader)
        for name in self.writers:
            self.sink(name).mkdir(exist_ok=True)
            writer = RecordingWriter(str(self.sink(name)))
            lake.write(name, writer, engine="direct", **self.options)  # type: ignore[arg-type]
        return lake

    def run(self) -> bool:
        """Run the pipeline once. True if no writer failed."""
        try:
            self.pipeline().run(self.hub, once=True)
        except PipelineFailed:
            return False
        return True

    @property
    def count_file(self) -> Path:
        """The file that holds the number of rows."""
        return self.directory / "rows"

    def sink(self, name: str = "crm") -> Path:
        """Return the directory of a writer."""
        return self.directory / name

    def refuse(self, *offsets: int, name: str = "crm") -> None:
        """Let a writer refuse these offsets from now on, and no others."""
        self.sink(name).mkdir(exist_ok=True)
        set_bad(self.sink(name), *offsets)

    def delivered(self, name: str = "crm") -> list[int]:
        """Return the offsets that a writer has written, in order."""
        return [offset for call in deliveries(self.sink(name)) for offset in call]

    def ledger(self, name: str = "crm") -> WriterLedger:
        """Return the stored ledger of a writer."""
        found = find_writer(self.hub, f"lake/{name}")
        return read_ledger(self.hub, found.name, self.hub.topic("lake.commits"))

    def mark(self, name: str = "crm") -> int:
        """Return the low-water mark of a writer."""
        return self.ledger(name).progress[LOG].mark

    def fail_at_14(self) -> None:
        """Run twice with record 14 refused: the batch of 16 fails, then the record alone."""
        self.refuse(14)
        assert not self.run()
        assert not self.run()
        assert self.mark() == 14
