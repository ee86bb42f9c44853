"""A file to begin a pipeline with: every key, its meaning, and values that load as they are."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tailrace.operations.plugins import sample, wrapped
from tailrace.operations.toml_text import toml_value
from tailrace.pipeline.defining import check_short_name
from tailrace.pipeline.definition import (
    BATCH_ROWS,
    LOG_BYTES_MAX,
    PROGRESS_INTERVAL,
    STOP_TIMEOUT,
    CatchUp,
    Engine,
    OnError,
    Start,
)
from tailrace.size import format_size


class KeyDoc(NamedTuple):
    """A key of a pipeline's file that no plug-in declares, with its default or an example."""

    name: str
    value: Any
    meaning: str


PIPELINE_KEYS: Final = (
    KeyDoc("partitions", 1, "How many partitions the commit log has. With one, all that is read "
           "is written in that order; with more, what is of one row is."),
    KeyDoc("engine", Engine.SPARK, "Where writers run that do not say it themselves: spark, or "
           "direct, which needs no Java."),
    KeyDoc("catch_up", CatchUp.NONE, "Whether reading waits after a restart: for none, or until "
           "all writers have caught up."),
    KeyDoc("log_bytes_max", format_size(LOG_BYTES_MAX), "Reading pauses while the slowest writer "
           "has more than this before it."),
    KeyDoc("stop_timeout", STOP_TIMEOUT, "How long a clean stop waits for writers to commit."),
    KeyDoc("progress_interval", PROGRESS_INTERVAL, "Acknowledgements are durable within this."),
)  # fmt: skip

WRITER_KEYS: Final = (
    KeyDoc("namespace", "/^public[.]/", "Which namespaces it gets: a name, or a regular expression "
           "between slashes. Without it, all."),
    KeyDoc("on_error", OnError.STOP, "What a record does that cannot be written: stop this writer, "
           "stop-all of them, or park, which puts it into the dead letters and goes on."),
    KeyDoc("engine", Engine.SPARK, "Where it runs: spark or direct."),
    KeyDoc("start", Start.EARLIEST, "Where it begins the first time: earliest, latest, or again, "
           "the earliest even if its sink has rows of this pipeline from another hub."),
    KeyDoc("batch_rows", BATCH_ROWS, "The most records of a partition that are written at once."),
    KeyDoc("functions", [{"omit": ["card"]}, {"skip": {"field": "total", "operator": "<",
           "value": 0}}], "What is done to documents on the way, in this order."),
)  # fmt: skip


def pipeline_file(reader: str, writer: str, name: str) -> str:
    """The text of a file that defines a pipeline of that name; it loads as it is."""
    check_short_name("pipeline", name)
    head = (
        f"A pipeline from {reader} to {writer}. Lines that begin with #name are defaults and",
        "examples: take the # away to set them. ${NAME} in any text is a variable of the",
        "environment. Look before it runs: tailrace pipeline test FILE",
    )
    return "\n".join(
        [
            *(f"# {line}" for line in head),
            "",
            "[pipeline]",
            f"name = {toml_value(name)}",
            *_commented(PIPELINE_KEYS),
            "",
            sample("reader", reader),
            "",
            sample("writer", writer),
            *_commented(WRITER_KEYS),
            "",
        ]
    )


def _commented(keys: tuple[KeyDoc, ...]) -> list[str]:
    lines: list[str] = []
    for key in keys:
        lines += [*wrapped(key.meaning), f"#{key.name} = {toml_value(key.value)}"]
    return lines
