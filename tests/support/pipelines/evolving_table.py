"""Writes rows to a Parquet table in steps, over restarts and deaths of the driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tailrace
from tailrace.pipeline.engine.driver import DriverOf
from tests.support.pipelines.dying_parquet import Died, DyingParquet
from tests.support.pipelines.writer_bench import WriterBench


class Step(NamedTuple):
    """Documents that one run of the writer delivers; it dies after a number of operations."""

    documents: list[dict[str, Any]]
    dies_after: int | None = None


def write_steps(
    hub: tailrace.Hub,
    driver_of: DriverOf,
    directory: Path,
    steps: Sequence[Step],
    *,
    batch_rows: int,
    meta: bool = True,
) -> set[int]:
    """Write the documents of all steps, numbered by `id`; return the refused ones.

    The last run of the writer does not die.
    """
    options = {"on_error": "park", "batch_rows": batch_rows}
    bench = WriterBench(hub, driver_of, DyingParquet(str(directory), meta=meta), options)
    fuse = DyingParquet.fuse
    number = 0
    for documents, dies_after in steps:
        bench.append_documents({"id": number + n, **each} for n, each in enumerate(documents))
        number += len(documents)
        fuse.left = dies_after
        try:
            bench.run()
        except Died:
            pass
        finally:
            fuse.left = None
    run = bench.run()
    assert not run.failed, run.ledger.state
    return {letter.value["id"] for letter in bench.dead_letters()}


def numbered(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the documents of all steps with their numbers."""
    documents = [document for step in steps for document in step.documents]
    return [{"id": number, **each} for number, each in enumerate(documents)]
