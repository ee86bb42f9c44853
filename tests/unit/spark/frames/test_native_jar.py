"""The jar of the native reader: the package has it, and it is built from the sources."""

from __future__ import annotations

import re
import shutil
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

from java.build import (
    JAR,
    compile_classes,
    compiler_version,
    manifest,
    source_files,
    write_jar,
)
from tailrace.spark import native_jar_path
from tailrace.spark.frames.native import PLAN_VERSION, SWITCH, with_native_jar
from tailrace.spark.reading import registration
from tailrace.spark.source import FILTERS, NATIVE


def _classes(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as opened:
        return {name: opened.read(name) for name in opened.namelist() if name.endswith(".class")}


def _manifest() -> bytes:
    with zipfile.ZipFile(JAR) as opened:
        return opened.read("META-INF/MANIFEST.MF")


def _compiler() -> str:
    found = re.search(r"^Created-By: (.*)\r$", _manifest().decode(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_package_contains_the_jar() -> None:
    assert native_jar_path() == JAR
    assert JAR.stat().st_size < 64_000


def test_the_jar_was_built_from_these_sources() -> None:
    assert _manifest() == manifest(_compiler()), "build the jar: make jar"


@pytest.mark.skipif(shutil.which("javac") is None, reason="a Java compiler is needed: javac")
def test_compiling_the_sources_gives_the_classes_of_the_jar(tmp_path: Path) -> None:
    compiled, stored = compile_classes(tmp_path), _classes(JAR)
    assert set(compiled) == set(stored), "build the jar: make jar"
    if compiler_version() == _compiler():  # Another one may choose other instructions.
        assert compiled == stored, "build the jar: make jar"


def test_building_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    write_jar(tmp_path / "again.jar", _classes(JAR), _compiler())
    assert (tmp_path / "again.jar").read_bytes() == JAR.read_bytes()


def test_the_jar_and_python_have_the_same_version_of_plans() -> None:
    (source,) = [path for path in source_files() if path.name == "TopicSource.java"]
    rule = files(registration.__package__).joinpath("TopicTables.java").read_text()
    for text in (source.read_text(), rule):
        assert re.findall(r"PLAN_VERSION = (\d+);", text) == [str(PLAN_VERSION)]


def test_the_rule_and_python_have_the_same_names_of_options() -> None:
    rule = files(registration.__package__).joinpath("TopicTables.java").read_text()
    constants = dict(re.findall(r'static final String (\w+) = "([^"]+)";', rule))
    assert constants["SWITCH"] == SWITCH
    assert constants["FILTERS"] == FILTERS
    assert constants["NATIVE"] == NATIVE


def test_the_jar_is_added_to_other_jars_of_a_session() -> None:
    assert with_native_jar({})["spark.jars"] == str(JAR)
    assert with_native_jar({"spark.jars": "a.jar,b.jar"})["spark.jars"] == f"a.jar,b.jar,{JAR}"
