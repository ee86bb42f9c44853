"""Kafka as a peer of the benchmarks: fetched once, and reported with a reason if missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import kafka
from bench.measure import QUICK
from bench.peers import jars
from bench.report import render

POMS = sorted((Path(kafka.__file__).parent / "jars").rglob("pom.xml"))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of one empty directory, and an empty cache of jars."""
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")
    found = tmp_path / "programs"
    found.mkdir()
    monkeypatch.setenv("PATH", str(found))
    return found


def _install_maven(programs: Path, script: str) -> Path:
    """Install a Maven that runs a script. `$OUT` is the directory for jars."""
    maven = programs / "mvn"
    directory = 'for word; do case "$word" in -DoutputDirectory=*) OUT="${word#*=}";; esac; done'
    maven.write_text(f"#!/bin/sh\n{directory}\n{script}\n")
    maven.chmod(0o755)
    return maven


def test_without_maven_every_row_says_that_it_was_not_measured(programs: Path) -> None:
    found = kafka.rows(QUICK)
    page = render([], found)
    assert len(found) == 4
    for row in found:
        assert f"| {row.work} | | | | not measured |" in page
        assert f"- *{row.work}*: Kafka: " in page
    assert "Maven, which is not installed" in page
    assert "0 of 0 goals reached" in page


def test_a_failing_maven_leaves_nothing_and_names_no_path(programs: Path) -> None:
    _install_maven(programs, f'/bin/mkdir "$OUT"; : > "$OUT/half.jar"; echo {programs}; exit 1')
    with pytest.raises(jars.Unavailable, match="could not fetch its jars") as caught:
        jars.fetch("kafka")
    assert str(programs.parent) not in str(caught.value)
    assert list(jars.CACHE.iterdir()) == []


def test_jars_are_fetched_once(programs: Path) -> None:
    maven = _install_maven(programs, '/bin/mkdir "$OUT"; : > "$OUT/kafka.jar"')
    fetched = jars.fetch("kafka")
    maven.unlink()
    assert jars.fetch("kafka") == fetched
    assert [jar.name for jar in fetched.iterdir()] == ["kafka.jar"]


@pytest.mark.parametrize("pom", POMS, ids=lambda pom: str(pom.parent.name))
def test_dependencies_of_maven_are_pinned_and_name_no_host(pom: Path) -> None:
    text = pom.read_text()
    assert "://" not in text
    assert text.count("<version>") == text.count("<artifactId>") - text.count("<artifactId>*")
