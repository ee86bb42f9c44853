"""Readers and writers by name: built-in ones, those of other packages, and broken ones."""

from __future__ import annotations

import mailbox
import re
from email.message import EmailMessage
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from tailrace.errors import ConfigError
from tailrace.log.schema import records_of
from tailrace.message import Op
from tailrace.pipeline.definition import plugins
from tailrace.pipeline.definition.options import options_of
from tailrace.pipeline.definition.plugins import PluginKind
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Attempt, RefusedRecord, Writer
from tailrace.source.reader import Reader, Until
from tests.support.plugins.packages import ACME, CATALOG, install, make_project
from tests.support.rows import record, rows_of

PAGE = Path(__file__).parents[4] / "docs" / "writing-plugins.md"
PUBLIC = ("tailrace", "tailrace.functions", "tailrace.readers", "tailrace.writers")
PLUGINS = [(kind, name) for kind in PluginKind for name in kind.built_in]


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(ACME, tmp_path / "site", monkeypatch)


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=lambda value: getattr(value, "noun", value))
def test_every_built_in_plugin_loads_and_explains_itself(kind: PluginKind, name: str) -> None:
    loaded = plugins.plugin(kind, name).load()
    assert loaded.__doc__
    for option in options_of(loaded):
        assert option.meaning, option.name
        assert not option.required or option.example is not None, option.name


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(ConfigError) as caught:
        plugins.writer("parkuet")
    assert "no writer 'parkuet' · did you mean 'parquet'? · valid: file, parquet, sql" in str(
        caught.value
    )


@pytest.mark.usefixtures("acme")
def test_packages_add_readers_and_writers_by_entry_points() -> None:
    assert "mbox" in plugins.readers()
    assert "folder" in plugins.writers()
    assert issubclass(plugins.reader("mbox"), Reader)
    assert issubclass(plugins.writer("folder"), Writer)
    assert plugins.plugin(PluginKind.READER, "mbox").package == "acme-tailrace 1.2"
    assert plugins.plugin(PluginKind.READER, "file").package == "tailrace"


def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    entry_points = '"tailrace.writers" = { bad = "bad_plugin:Bad" }'
    project = make_project(tmp_path / "bad", "bad", entry_points, module)
    install(project, tmp_path / "site", monkeypatch)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import no_such_module\n", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("1 / 0\n", "cannot be loaded: ZeroDivisionError"),
        ("", "cannot be loaded: AttributeError"),
        ("class Bad: pass\n", "is not a Writer: bad_plugin:Bad"),
    ],
)
def test_a_broken_plugin_is_named_with_its_reason_when_it_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, reason: str
) -> None:
    broken(tmp_path, monkeypatch, module)
    assert "bad" in plugins.writers()
    with pytest.raises(ConfigError) as caught:
        plugins.writer("bad")
    assert str(caught.value).startswith(f"writer 'bad' of bad 0.1 {reason}")


def test_a_package_cannot_take_the_name_of_a_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points = '"tailrace.writers" = { file = "bad_plugin:Bad" }'
    install(make_project(tmp_path / "bad", "bad", entry_points, ""), tmp_path / "s", monkeypatch)
    assert plugins.plugin(PluginKind.WRITER, "file").package == "tailrace"


def mails(path: Path, subjects: list[str]) -> None:
    box = mailbox.mbox(path)
    for subject in subjects:
        mail = EmailMessage()
        mail["Message-ID"], mail["From"], mail["Subject"] = subject, "a@example.com", subject
        box.add(mail)
    box.close()


@pytest.mark.usefixtures("acme")
def test_the_reader_of_the_example_resumes_after_its_position(tmp_path: Path) -> None:
    path = tmp_path / "in.mbox"
    mails(path, ["one", "two"])
    options: Any = plugins.reader("mbox")
    reader = options(path=str(path))
    assert reader.check().sentence == f"2 mails in {path}"
    reading = reader.open(Until.NOW)
    (split,) = reading.splits()
    (batch,) = reading.read(split, None, None, {})
    assert [each.key for each in records_of(batch.records)] == [b"mails", b"mails"]
    mails(path, ["three"])
    (rest,) = reading.read(split, batch.position, None, {})
    assert b'"subject":"three"' in records_of(rest.records)[0].value
    following = reader.open(Until.STOPPED).read(split, rest.position, None, {})
    assert next(following) is None


@pytest.mark.usefixtures("acme")
def test_the_writer_of_the_example_writes_removes_and_names_refused_rows(tmp_path: Path) -> None:
    options: Any = plugins.writer("folder")
    writer = options(directory=str(tmp_path / "out"))
    assert "out" in writer.check()
    session = writer.open(cast(Attempt, None))
    first = rows_of(record(0, {"id": "a"}), record(1, {"id": "b"}), record(2, {"no": "id"}))
    assert session.write(first, Offsets(0, 3)) == [RefusedRecord(2, "it has no id")]
    session.write(rows_of(record(3, {"id": "a"}, op=Op.DELETE)), Offsets(3, 4))
    assert [file.name for file in (tmp_path / "out" / "orders").iterdir()] == ["b.json"]
    assert session.finish() == ()
    session.write(rows_of(record(4, {"id": "../../b"})), Offsets(4, 5))
    assert {file.parent.name for file in tmp_path.rglob("*.json")} == {"orders"}


def test_the_page_shows_the_examples_as_they_are() -> None:
    page = PAGE.read_text()
    before, heading, after = page.partition("\n## A reader for many tasks\n")
    section, _, rest = after.partition("\n## ")
    shown = "".join(re.findall(r"^```python\n(.*?)^```$", before + rest, re.MULTILINE | re.DOTALL))
    assert "".join(shown.split()) == "".join((ACME / "acme_tailrace.py").read_text().split())
    assert (ACME / "pyproject.toml").read_text() in page
    assert heading
    for module in CATALOG.glob("*.py"):
        assert f"```python\n{module.read_text()}```\n" in section, module


def test_the_example_imports_from_public_packages_alone() -> None:
    source = (ACME / "acme_tailrace.py").read_text()
    source += (CATALOG / "catalog_reader.py").read_text()
    imported = re.findall(r"^from (tailrace[\w.]*) import", source, re.MULTILINE)
    assert set(imported) <= set(PUBLIC)
    assert set(imported) >= {"tailrace.readers", "tailrace.writers"}


@pytest.mark.parametrize("name", PUBLIC[1:])
def test_public_packages_list_the_names_that_plugins_import(name: str) -> None:
    package = import_module(name)
    assert package.__all__ == sorted(package.__all__)
    assert all(getattr(package, each).__doc__ for each in package.__all__ if each != "Document")
