"""What pages say of the code is so: settings, tests, bytes and tables."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.backend.embedded import database, layout, opening
from tailrace.duration import format_duration
from tailrace.log.index import ENTRY, MAGIC
from tailrace.log.record import Record, encode_records
from tailrace.operations import pipeline_file
from tailrace.settings import describe

DOCS = Path(__file__).parents[2] / "docs"
HELD_BY = re.compile(r"^\| \[\w+\]\((\.\./tests/\S+\.py)\) \| (.+) \|$", re.MULTILINE)
TABLE = re.compile(r"CREATE TABLE (\w+)\((.*?)\)(?: WITHOUT ROWID)?;", re.DOTALL)
CONSTRAINT = re.compile(r"(?:UNIQUE|PRIMARY KEY)\(.*?\)")


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next of the same rank."""
    _, _, rest = page.partition(f"\n## {heading}\n")
    assert rest, heading
    return rest.partition("\n## ")[0]


def test_every_setting_is_documented_as_it_is() -> None:
    page = (DOCS / "configuration.md").read_text()
    documented = [line for line in page.splitlines() if line.startswith("| `hub.")]
    assert documented == [
        f"| `{s.name}` | `{s.environment}` | `{s.default}` | {s.valid} | {s.meaning} |"
        for s in describe()
    ]


def test_every_key_of_a_pipelines_file_is_documented_with_its_default() -> None:
    page = section((DOCS / "pipelines.md").read_text(), "A definition")
    shown = dict(re.findall(r"^\| `(\w+)`.*? \| (.*?) \|", page, re.MULTILINE))
    plain = {name: default.strip("`").replace(",", "") for name, default in shown.items()}
    keys = (*pipeline_file.PIPELINE_KEYS, *pipeline_file.WRITER_KEYS)
    assert plain.keys() == {"name", "type", *(key.name for key in keys)}
    for key in pipeline_file.PIPELINE_KEYS:
        value = key.value if isinstance(key.value, int | str) else format_duration(key.value)
        if key.name != "engine":
            assert plain[key.name] == str(value), key.name


def test_every_test_that_holds_a_guarantee_exists() -> None:
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


def test_every_guarantee_is_held_by_some_test() -> None:
    page = (DOCS / "guarantees.md").read_text()
    guarantees = re.findall(r"^## (\d\. .+)$", page, re.MULTILINE)
    assert len(guarantees) == 8
    assert [name for name in guarantees if not HELD_BY.search(section(page, name))] == []


def test_the_published_bytes_are_what_is_written() -> None:
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
