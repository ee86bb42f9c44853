"""`tailrace status`, `hub info`, `segment`: health, findings and remedies."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tailrace.backend.embedded import layout
from tailrace.operations import status
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "hub")
    cli.run("topic", "create", "orders", "-p", "1")
    cli.run("push", "orders", *map(str, range(100)))
    return cli


def records_file(cli: CommandLine) -> Path:
    (file,) = cli.hub.glob("topics/orders/*/*.log")
    return file


def test_a_hub_that_is_well_reports_its_contents(cli: CommandLine) -> None:
    assert cli.run("status").stdout.startswith("well: 1 topic, 100 messages")
    found = cli.json("status")
    assert found["well"]
    assert found["problems"] == []
    assert found["hub"]["messages"] == 100


def test_the_topics_of_tailrace_itself_are_not_counted_as_the_users(cli: CommandLine) -> None:
    cli.run("tail", "orders", "--group", "billing", "-n", "100")
    cli.run("group", "seek", "billing", "earliest", "--yes")
    assert {"tailrace.audit", "tailrace.groups"} < {
        each["name"] for each in cli.json("topic", "list")
    }
    cli.run("tail", "orders", "--group", "billing", "--exit")
    assert cli.run("status").stdout.startswith("well: 1 topic, 1 group, 100 messages, ")
    found = cli.json("status")["hub"]
    assert (found["topics"], found["messages"]) == (1, 100)
    assert found["internal_messages"] > 1
    assert found["bytes"] == cli.json("topic", "show", "orders")["bytes"]


def test_a_file_that_lacks_one_byte_is_counted_in_the_singular(cli: CommandLine) -> None:
    file = records_file(cli)
    file.write_bytes(file.read_bytes()[:-1])
    assert "ends 1 byte early" in cli.run("status", status=4).stdout


def test_a_missing_file_is_not_well(cli: CommandLine) -> None:
    records_file(cli).unlink()
    found = cli.run("status", status=4).stdout
    assert found.startswith("NOT WELL")
    assert "is missing" in found
    assert "tailrace segment verify orders/0.0" in found
    assert not cli.json("status", status=4)["well"]


def test_a_file_that_ends_early_is_not_well(cli: CommandLine) -> None:
    file = records_file(cli)
    file.write_bytes(file.read_bytes()[:-10])
    assert "ends 10 bytes early" in cli.run("status", status=4).stdout


def test_a_reserve_that_was_given_up_is_not_well(cli: CommandLine) -> None:
    (cli.hub / "hub.reserve").unlink()
    assert "hub.reserve" in cli.run("status", status=4).stdout


def test_a_disk_that_is_nearly_full_is_not_well(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "disk_usage", lambda _directory: (1 << 20, 99))
    assert "99 % full, 1 MB free" in cli.run("status", status=4).stdout


def test_a_write_ahead_log_that_never_starts_over_is_not_well(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "WAL_BYTES_MAX", 100)
    assert "hub.db-wal" in cli.run("status", status=4).stdout


def test_a_hub_that_another_process_holds_is_not_well(cli: CommandLine) -> None:
    impatient = {"TAILRACE_HUB__LOCK_TIMEOUT": "20ms"}
    with (cli.hub / "hub.commit").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = cli.run("status", status=4, env=impatient).stdout
    assert found.startswith(f"NOT WELL\n  hub {cli.hub}")
    cli.run("status", env=impatient)


def test_hub_info_describes_the_hub(cli: CommandLine) -> None:
    info = cli.json("hub", "info")
    assert (info["format"], info["sync"], info["topics"]) == (2, "batch", 1)
    assert "on disk when acknowledged" in cli.run("hub", "info").stdout


def test_segments_are_listed_and_shown(cli: CommandLine) -> None:
    (segment,) = cli.json("segment", "list", "orders")
    assert (segment["partition"], segment["base"], segment["end"]) == ("orders/0.0", 0, 100)
    assert cli.json("segment", "list") == cli.json("segment", "list", "orders/0.0") == [segment]
    shown = cli.json("segment", "show", "orders/0.0@42")
    assert shown["segment"] == segment
    assert {Path(file["path"]).suffix for file in shown["files"]} == {".log", ".positions"}
    assert shown["newest"][-1]["last"] == 99
    assert "CRC-32" in cli.run("segment", "show", "orders/0.0").stdout


def test_a_segment_of_no_record_is_an_error(cli: CommandLine) -> None:
    assert "OutOfRange" in cli.run("segment", "show", "orders/0.0@100", status=1).stderr
    assert "InvalidValue" in cli.run("segment", "show", "orders/0.9", status=2).stderr
    assert "InvalidValue" in cli.run("segment", "show", "orders", status=2).stderr


def test_verify_reports_undamaged_segments_as_whole(cli: CommandLine) -> None:
    assert cli.run("segment", "verify").stdout.startswith("no damage: 100 messages")
    assert cli.json("segment", "verify", "orders")["damages"] == []


def test_verify_names_a_flipped_bit(cli: CommandLine) -> None:
    file = records_file(cli)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    found = cli.json("segment", "verify", status=1)
    (damage,) = found["damages"]
    assert damage["partition"] == "orders/0.0"
    assert damage["file"] == str(file)
    assert "checksum" in damage["reason"]
    assert cli.run("segment", "verify", "orders/0.0", status=1).stdout.startswith(
        "DAMAGED: 1 range"
    )


def test_verify_names_a_missing_file_and_continues(cli: CommandLine) -> None:
    cli.run("topic", "create", "other", "-p", "1")
    cli.run("push", "other", "1")
    records_file(cli).unlink()
    found = cli.json("segment", "verify", status=1)
    (damage,) = found["damages"]
    assert (damage["first"], damage["last"], damage["reason"]) == (0, 99, "the file is missing")
    assert found["messages"] == 101


def test_verify_names_a_file_that_cannot_be_read(cli: CommandLine) -> None:
    file = records_file(cli)
    file.unlink()
    file.mkdir()
    (damage,) = cli.json("segment", "verify", status=1)["damages"]
    assert (damage["first"], damage["last"], damage["file"]) == (0, 99, str(file))
    assert "cannot be read" in damage["reason"]
