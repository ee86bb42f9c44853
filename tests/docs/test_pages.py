"""The pages agree with the code: settings, tests, bytes and tables."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct

from tailrace.backend.embedded import database, layout, opening
from tailrace.duration import format_duration
from tailrace.log.index import ENTRY, MAGIC
from tailrace.log.record import Record, encode_records
from tailrace.pipeline.definition.options import PluginOption, options_of
from tailrace.pipeline.definition.settings import PipelineSettings, WriterSettings
from tailrace.reporting.metric import MetricScope
from tailrace.settings import describe
from tailrace.size import format_size
from tailrace.subscription.shard import options as shard_options
from tailrace.subscription.store.requests.making import PENDING_MAX
from tailrace.subscription.store.requests.selection import SELECTED_MAX
from tailrace.telemetry import METRICS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ABOUT_CODE = [DOCS / "architecture.md", DOCS / "groups-protocol.md", *DOCS.glob("design/*.md")]
"""The pages that name modules, classes and functions."""
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`")
NAME_IN_MODULE = re.compile(r"`([A-Za-z_.]+)`\s+(?:in\s+|\()`([a-z_/]+\.py)`")
TEST_IN_FILE = re.compile(r"\]\(\.\./(tests/\S+\.py)\) `(test_\w+)`")
HELD_BY = re.compile(r"^\| \[\w+\]\((\.\./tests/\S+\.py)\) \| (.+) \|$", re.MULTILINE)
TABLE = re.compile(r"CREATE TABLE (\w+)\((.*?)\)(?: WITHOUT ROWID)?;", re.DOTALL)
CONSTRAINT = re.compile(r"(?:UNIQUE|PRIMARY KEY)\(.*?\)")


def section(page: str, heading: str) -> str:
    """Return the text under a heading, up to the next heading of the same rank."""
    _, _, rest = page.partition(f"\n## {heading}\n")
    assert rest, heading
    return rest.partition("\n## ")[0]


def test_each_design_decision_has_a_number_of_its_own() -> None:
    pages = sorted(DOCS.glob("design/*.md"))
    assert [page.name[:4] for page in pages] == [f"{n + 1:04}" for n in range(len(pages))]
    assert all(page.read_text().startswith(f"# {page.name[:4]} ") for page in pages)


def test_every_setting_is_documented() -> None:
    page = (DOCS / "configuration.md").read_text()
    unlinked = re.sub(r"\[(\w+)\]\(\w+\.md\)", r"\1", page)
    documented = [line for line in unlinked.splitlines() if re.match(r"\| `\w+\.\w+` ", line)]
    assert documented == [
        f"| `{s.name}` | `{s.environment}` | `{s.default}` | {s.valid} | {s.meaning} |"
        for s in describe()
    ]


@pytest.mark.parametrize(
    ("scope", "heading"),
    [(MetricScope.PROCESS, "Of a process"), (MetricScope.HUB, "Of the hub")],
)
def test_every_metric_is_documented_as_it_is_declared(scope: MetricScope, heading: str) -> None:
    page = section((DOCS / "metrics.md").read_text(), "All metrics")
    table = page.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    expected = [
        f"| `{m.name}` | {m.kind.value} | {', '.join(f'`{each}`' for each in m.labels)}"
        f" | {m.meaning} | {m.remedy} |"
        for m in METRICS.values()
        if m.scope is scope
    ]
    assert rows == expected, "\n".join(["the rows should be:", *expected])


@pytest.mark.parametrize(
    ("declared", "heading"),
    [(PipelineSettings, "[pipeline]"), (WriterSettings, "[writer.NAME]")],
    ids=["pipeline", "writer"],
)
def test_every_setting_of_a_pipeline_is_documented_as_it_is(
    declared: type[Struct], heading: str
) -> None:
    page = section((DOCS / "pipelines.md").read_text(), "A definition")
    _, _, rest = page.partition(f"| key of `{heading}` | default | meaning |\n|---|---|---|\n")
    table = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", rest.partition("\n\n")[0]).replace("`", "")
    shown = [tuple(line.strip("| ").split(" | ")) for line in table.splitlines()[1:]]
    assert shown == [
        (option.name, default_of(option), option.meaning) for option in options_of(declared)
    ]


def test_the_limits_of_a_subscription_are_documented_as_they_are() -> None:
    page = section((DOCS / "subscriptions.md").read_text(), "Limits")
    shown = [line.split(" | ")[1] for line in page.splitlines() if line.startswith("| ")]
    move_bytes, payload_bytes = (
        f"{number >> 20} MiB"
        for number in (shard_options.APPEND_BYTES_MAX, shard_options.PAYLOAD_BYTES_MAX)
    )
    limits = [
        f"{shard_options.HELD_MAX:,}",
        f"{shard_options.MOVES_MAX:,}, or {move_bytes}",
        payload_bytes,
        f"{SELECTED_MAX:,} keys or letters",
        f"{PENDING_MAX:,}",
    ]
    assert [limit for limit in limits if limit not in shown] == []
    assert f"up to {shard_options.PERMITS_AHEAD} times `concurrency`" in page


def default_of(option: PluginOption) -> str:
    """Return the default of a setting as a page shows it."""
    value = option.default
    if option.is_size:
        return format_size(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    return option.unset or (f"{value:,}" if isinstance(value, int) else str(value))


def test_every_test_that_checks_a_guarantee_exists() -> None:
    page = (DOCS / "guarantees.md").read_text()
    rows = HELD_BY.findall(page)
    assert len(rows) == page.count("](../tests/")
    missing = [
        f"{path}::{name}"
        for path, names in rows
        for name in re.findall(r"`(\w+)`", names)
        if f"def {name}(" not in (DOCS / path).read_text()
    ]
    assert missing == []


def module_named(path: str) -> Path:
    """Return the file of a module that a page names by its path in the package or repository."""
    inside = ROOT / "src" / "tailrace" / path
    return inside if inside.exists() else ROOT / path


def test_every_module_that_a_page_names_exists() -> None:
    named = {path for page in ABOUT_CODE for path in MODULE.findall(page.read_text())}
    assert len(named) > 40
    assert [path for path in sorted(named) if not module_named(path).exists()] == []


def test_every_name_is_in_the_module_in_which_a_page_places_it() -> None:
    named = {found for page in ABOUT_CODE for found in NAME_IN_MODULE.findall(page.read_text())}
    assert len(named) > 20
    missing = [
        f"{name} in {path}"
        for name, path in sorted(named)
        for part in name.split(".")
        if not re.search(rf"\b{part}\b", module_named(path).read_text())
    ]
    assert missing == []


def test_every_test_that_checks_a_safeguard_exists() -> None:
    named = TEST_IN_FILE.findall((DOCS / "architecture.md").read_text())
    assert len(named) > 8
    missing = [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_every_guarantee_is_checked_by_a_test() -> None:
    page = (DOCS / "guarantees.md").read_text()
    guarantees = re.findall(r"^## (\d+\. .+)$", page, re.MULTILINE)
    assert len(guarantees) == 14
    assert [name for name in guarantees if not HELD_BY.search(section(page, name))] == []


def test_the_published_bytes_are_the_written_bytes() -> None:
    page = section((DOCS / "format.md").read_text(), "Records")
    encoded = encode_records([Record(0, 1495000000, 0, 0, b"A", None, b"{}")])
    written = bytes(encoded.stamp(0)).hex()
    shown = re.search(r"```text\n([0-9a-f ]+)\n```", page)
    assert shown is not None
    assert shown.group(1).replace(" ", "") == written


def test_every_table_and_column_of_the_database_is_documented() -> None:
    page = section((DOCS / "format.md").read_text(), "Tables of hub.db")
    rows = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE)}
    tables = dict(TABLE.findall(database.SCHEMA))
    assert rows.keys() == tables.keys()
    for table, body in tables.items():
        columns = [part.split()[0] for part in CONSTRAINT.sub("", body).split(",") if part.strip()]
        shown = re.findall(r"`(\w+)`", rows[table])
        assert [name for name in columns if name not in shown] == (
            [] if table != "entries" else columns[columns.index("records") : -2]
        )


def test_the_entries_and_blocks_of_an_index_are_documented() -> None:
    page = section((DOCS / "format.md").read_text(), "Segments")
    shown = re.findall(r"^\| (?:`(\w+)`|\(zero\)) \| (\d) \|", page, re.MULTILINE)
    widths = [(name, str(ENTRY[name].itemsize)) for name in ENTRY.names or ()]
    assert shown == [*widths[:-1], ("", widths[-1][1])]
    assert f"`{MAGIC.decode()}`" in page
    assert f"| {ENTRY.itemsize} each |" in page


def test_every_file_of_a_hub_is_documented() -> None:
    page = section((DOCS / "format.md").read_text(), "Files of a hub")
    hub = layout.Layout(Path("data"))
    files = (hub.database, hub.partition_locks, hub.commit_lock, hub.wake, hub.pause, hub.reserve)
    assert [file.name for file in files if f"  {file.name} " not in page] == []
    assert f"{layout.RESERVE_BYTES >> 20} MiB" in page


def test_the_format_number_is_documented() -> None:
    assert f"This is format {opening.FORMAT}." in (DOCS / "format.md").read_text()
