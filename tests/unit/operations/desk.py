"""An operator's desk: a hub in which the pipeline ``lake`` runs, and what its sinks were given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import tailrace
from tailrace.errors import PipelineFailed
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.registered import find_writer, read_books
from tailrace.pipeline.books import Books
from tests.pipelines.counting import CountingReader
from tests.pipelines.recording import RecordingWriter, deliveries, set_bad

LOG = Partition("lake.commits", 0, 0)


@dataclass
class Desk:
    """Numbers, as many as `rows`, into writers by the direct engine, each with a directory."""

    hub: Hub
    directory: Path
    writers: tuple[str, ...] = ("crm",)
    rows: int = 16
    namespaces: tuple[str, ...] = ("A",)
    options: dict[str, object] = field(default_factory=dict)

    def pipeline(self) -> tailrace.Pipeline:
        self.count_file.write_text(str(self.rows))
        reader = CountingReader(namespaces=self.namespaces, rows_file=str(self.count_file))
        lake = tailrace.Pipeline("lake", reader)
        for name in self.writers:
            self.sink(name).mkdir(exist_ok=True)
            writer = RecordingWriter(str(self.sink(name)))
            lake.write(name, writer, engine="direct", **self.options)  # type: ignore[arg-type]
        return lake

    def run(self) -> bool:
        """Run it once; whether nothing failed."""
        try:
            self.pipeline().run(self.hub, once=True)
        except PipelineFailed:
            return False
        return True

    @property
    def count_file(self) -> Path:
        return self.directory / "rows"

    def sink(self, name: str = "crm") -> Path:
        return self.directory / name

    def refuse(self, *offsets: int, name: str = "crm") -> None:
        self.sink(name).mkdir(exist_ok=True)
        set_bad(self.sink(name), *offsets)

    def given(self, name: str = "crm") -> list[int]:
        """The offsets that a sink was given, in order."""
        return [offset for call in deliveries(self.sink(name)) for offset in call]

    def books(self, name: str = "crm") -> Books:
        found = find_writer(self.hub, f"lake/{name}")
        return read_books(self.hub, found.name, self.hub.topic("lake.commits"))

    def mark(self, name: str = "crm") -> int:
        return self.books(name).progress[LOG].mark

    def fail_at_14(self) -> None:
        """As in the founding text: a batch of 16 fails, then record 14 of it."""
        self.refuse(14)
        assert not self.run()
        assert not self.run()
        assert self.mark() == 14
