"""The sources of settings, their order, and errors by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.duration import format_duration, parse_duration
from tailrace.errors import ConfigError, InvalidValue
from tailrace.reporting.address import Address
from tailrace.settings import HubSettings, Settings, Sync, describe, load
from tailrace.size import format_size, parse_size


def loaded(
    directory: Path,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    return load(flags, environ or {}, directory)


def refused(directory: Path, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, environ)
    return str(caught.value)


def test_without_any_source_every_setting_has_its_default(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert settings.hub == HubSettings()
    assert settings.hub.path == "tailrace-data"
    assert settings.hub.sync is Sync.BATCH
    assert settings.hub.lock_timeout == timedelta(seconds=10)
    assert settings.hub.message_bytes_max == 1024 * 1024
    assert set(settings.origins.values()) == {"default"}


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text('[hub]\nsync = "none"\nlinger = "1ms"\nlock_timeout = "1s"\n')
    environ = {"TAILRACE_HUB__LINGER": "2ms", "TAILRACE_HUB__LOCK_TIMEOUT": "2s"}
    settings = loaded(tmp_path, environ, {"hub.lock_timeout": "3s", "hub.path": None})
    values = {name: (value, origin) for name, value, origin in settings.values()}
    assert values["hub.path"] == ("tailrace-data", "default")
    assert values["hub.sync"] == ("none", str(file))
    assert values["hub.linger"] == ("2ms", "TAILRACE_HUB__LINGER")
    assert values["hub.lock_timeout"] == ("3s", "flag")


def test_only_the_nearest_file_upward_counts(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text('[hub]\nsync = "none"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert loaded(inner).hub.sync is Sync.NONE
    (inner / "tailrace.toml").write_text("[hub]\nauto_create = true\n")
    assert loaded(inner).hub == HubSettings(auto_create=True)


def test_pyproject_counts_where_it_has_a_table_for_tailrace(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text('[hub]\nsync = "none"\n')
    inner = tmp_path / "project"
    inner.mkdir()
    pyproject = inner / "pyproject.toml"
    pyproject.write_text('[project]\nname = "tailrace-user"\n[tool.other]\nx = 1\n')
    assert loaded(inner).hub.sync is Sync.NONE
    pyproject.write_text('[tool.tailrace.hub]\nsegment_bytes = "64KiB"\n')
    settings = loaded(inner)
    assert settings.hub == HubSettings(segment_bytes=65_536)
    assert settings.origins["hub.segment_bytes"] == str(pyproject)


def test_a_path_in_a_file_is_relative_to_that_file(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text('[hub]\npath = "data"\n')
    inner = tmp_path / "inner"
    inner.mkdir()
    assert loaded(inner).hub.path == str(tmp_path / "data")
    assert loaded(inner, {"TAILRACE_HUB": "here"}).hub.path == "here"
    assert loaded(inner, {"TAILRACE_HUB": ""}).hub.path == str(tmp_path / "data")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[hub]\nlokc_timeout = "1s"\n', "unknown setting hub.lokc_timeout · did you mean 'hub.lo"),
        ('sync = "none"\n', "unknown setting sync · did you mean 'hub.sync'?"),
        ("[nub]\nsync = 1\n", "unknown setting nub.sync · did you mean 'hub.sync'?"),
        ('[hub]\nsync = "always"\n', "hub.sync is 'always' · valid: batch or none"),
        ("[hub]\nlinger = 5\n", "hub.linger is 5 · valid: a timedelta or text such as 500ms"),
        ('[hub]\nlinger = "2h"\n', "hub.linger is '2h' · valid: 0s to 1m"),
        ("[hub]\nsegment_bytes = 63\n", "hub.segment_bytes is 63 · valid: 64B to 4294967295B"),
        ('[hub]\nsegment_bytes = "4GiB"\n', "hub.segment_bytes is '4GiB' · valid: 64B to"),
        ("[hub]\nkey_bytes_max = 1.5\n", "hub.key_bytes_max is 1.5 · valid: bytes as a number"),
        ("[hub]\nauto_create = 2\n", "hub.auto_create is 2 · valid: true or false"),
        ('[hub]\npath = ""\n', "hub.path is '' · valid: a directory"),
        ("[hub]\npath.x = 1\n", "hub.path is {'x': 1} · valid: a directory"),
        ("[hub\n", "is not TOML: "),
    ],
)
def test_an_error_in_a_file_is_reported_with_its_name(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text(text)
    message = refused(tmp_path)
    assert message.startswith(str(file))
    assert reason in message


def test_an_error_in_the_environment_is_reported_with_its_variable(tmp_path: Path) -> None:
    message = refused(tmp_path, {"TAILRACE_HUB__SYNK": "none"})
    assert "TAILRACE_HUB__SYNK: unknown setting hub.synk · did you mean 'hub.sync'?" in message
    message = refused(tmp_path, {"TAILRACE_HUB__AUTO_CREATE": "maybe"})
    assert message.startswith("TAILRACE_HUB__AUTO_CREATE: hub.auto_create is 'maybe'")


def test_variables_of_other_forms_are_left_alone(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"TAILRACE_EVIDENCE": "x", "HUB__SYNC": "y"}).hub == HubSettings()


def test_two_files_in_one_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text("[tool.tailrace]\n")
    assert "keep one of them" in refused(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").mkdir()
    assert "tailrace.toml cannot be read" in refused(tmp_path)
    (tmp_path / "tailrace.toml").rmdir()
    (tmp_path / "tailrace.toml").write_bytes(b"\xff")
    assert "tailrace.toml cannot be read" in refused(tmp_path)


def test_a_removed_working_directory_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    assert load(environ={}).hub == HubSettings()


def test_a_pyproject_of_others_may_be_broken(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert loaded(tmp_path).hub == HubSettings()


def test_every_documented_default_is_valid_and_is_the_default(tmp_path: Path) -> None:
    documented = describe()
    assert len({doc.name for doc in documented}) == len(documented)
    environ = {doc.environment: doc.default for doc in documented}
    settings = loaded(tmp_path, environ)
    assert settings.hub == HubSettings()
    assert settings.origins == {doc.name: doc.environment for doc in documented}
    assert all(doc.meaning.endswith(".") and doc.valid for doc in documented)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("off", None),
        ("9464", Address("127.0.0.1", 9464)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
    ],
)
def test_the_address_of_metrics_is_off_or_a_port(
    tmp_path: Path, text: str, address: Address | None
) -> None:
    settings = loaded(tmp_path, {"TAILRACE_METRICS__LISTEN": text})
    assert settings.metrics.listen == address
    shown = {each.name: each.value for each in settings.values()}
    assert shown["metrics.listen"] == ("off" if address is None else str(address))


def test_the_address_of_metrics_may_be_a_number_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text("[metrics]\nlisten = 9464\n")
    assert loaded(tmp_path).metrics.listen == Address("127.0.0.1", 9464)
    (tmp_path / "tailrace.toml").write_text('[metrics]\nlisten = "somewhere"\n')
    assert "metrics.listen is 'somewhere' · valid: off, PORT or HOST:PORT" in refused(tmp_path)


def test_settings_given_in_python_are_read_like_all_others() -> None:
    settings = HubSettings.of(sync="none", linger=timedelta(seconds=1), segment_bytes="1KiB")
    assert settings.sync is Sync.NONE
    assert settings.linger == timedelta(seconds=1)
    assert settings.segment_bytes == 1024
    with pytest.raises(InvalidValue, match="setting is 'segments'"):
        HubSettings.of(segments=3)
    with pytest.raises(InvalidValue, match="setting is 'listen'"):
        HubSettings.of(listen="off")
    with pytest.raises(InvalidValue, match="lock_timeout is '0s'"):
        HubSettings.of(lock_timeout="0s")


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0s", timedelta()),
        ("250us", timedelta(microseconds=250)),
        ("5ms", timedelta(milliseconds=5)),
        ("1.5s", timedelta(seconds=1, milliseconds=500)),
        ("10m", timedelta(minutes=10)),
        ("1h 30m", timedelta(hours=1, minutes=30)),
        ("7d", timedelta(days=7)),
    ],
)
def test_durations_are_parsed_as_people_write_them(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration
    assert parse_duration(duration) is duration


@given(st.timedeltas(timedelta(), timedelta(days=10_000)))
def test_every_duration_survives_writing(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    "value", ["", "5", "5 parsecs", "-5s", "s", "1e3s", "٣s", "9" * 30 + "d", 5, None,
              timedelta(seconds=-1)]
)  # fmt: skip
def test_an_invalid_duration_is_refused_with_the_valid_form(value: object) -> None:
    with pytest.raises(InvalidValue, match=r"lease is .* valid: a timedelta or text such as 500ms"):
        parse_duration(value, "lease")


@given(st.integers(0, 2**50) | st.integers(0, 2**12).map(lambda count: count << 30))
def test_every_size_survives_writing(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes
    assert parse_size(size_bytes) == size_bytes


@pytest.mark.parametrize("value", ["", "1MB", "1.5MiB", "-1", "KiB", -1, True, 1.0, None])
def test_an_invalid_size_is_refused_with_the_valid_form(value: object) -> None:
    with pytest.raises(InvalidValue, match=r"budget is .* valid: bytes as a number, or text such"):
        parse_size(value, "budget")
