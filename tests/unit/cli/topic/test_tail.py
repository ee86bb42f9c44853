"""`tailrace tail`: start, end and output formats."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A hub whose topic has 40 messages of 5 keys, one a minute from noon, scaled half-way."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        orders = hub.create_topic("orders", partitions=4)
        for number in range(40):
            if number == 20:
                orders.scale(12)
            at = NOON + timedelta(minutes=number)
            orders.push(number, key=f"c{number % 5}", timestamp=at)
    return cli


def numbers(lines: list[str]) -> list[int]:
    return sorted(map(int, lines))


def test_messages_are_printed_in_order_per_key_over_a_scaling(cli: CommandLine) -> None:
    seen: dict[str, list[int]] = {}
    for line in cli.tail("orders", "-f", "%k %v"):
        key, value = line.split()
        seen.setdefault(key, []).append(int(value))
    assert seen == {f"c{k}": list(range(k, 40, 5)) for k in range(5)}


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ((), range(40)),
        (("--from", "earliest"), range(40)),
        (("--from", "latest"), range(0)),
        (("--from", "-1"), range(39, 40)),
        (("--from", "-7"), range(33, 40)),
        (("--from", "-25"), range(15, 40)),
        (("--from", "-1000"), range(40)),
        (("--to", "-30"), range(10)),
        (("--from", "-30", "--to", "-5"), range(10, 35)),
        (("--to", "earliest"), range(0)),
        (("--to", "latest"), range(40)),
        (("--from", "@2026-01-01T12:10Z"), range(10, 40)),
        (("--from", "@2026-01-01T12:10"), range(10, 40)),
        (("--from", "@2026-01-01T13:10+01:00"), range(10, 40)),
        (("--from", "@2026-01-01T12:10Z", "--to", "@2026-01-01T12:25Z"), range(10, 25)),
        (("--from", "@2030-01-01"), range(0)),
        (("--from", "@1999-01-01"), range(40)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_from_and_to_select_the_messages_between_them(
    cli: CommandLine, edges: tuple[str, ...], expected: range
) -> None:
    assert numbers(cli.tail("orders", *edges)) == list(expected)


def test_a_position_selects_its_partition_alone_including_the_last_message(
    cli: CommandLine,
) -> None:
    with tailrace.open(cli.hub) as hub:
        full = max(
            (end, number) for number, end in enumerate(hub.topic("orders").storage_topics[0].ends)
        )
    end, number = full
    where = f"orders/0.{number}"
    everything = cli.tail(where, "-f", "%p@%o")
    assert everything == [f"{where}@{offset}" for offset in range(end)]
    edges = ("--from", f"{where}@1", "--to", f"{where}@{end - 2}")
    assert cli.tail("orders", *edges, "-f", "%p@%o") == everything[1:-1]
    assert cli.tail(where, "--from", "-2", "-f", "%p@%o") == everything[-2:]


@pytest.mark.parametrize(
    ("edges", "status", "error"),
    [
        (("--from", "yesterday"), 2, "InvalidValue: --from is 'yesterday' · valid: earliest, "),
        (("--to", "tomorrow"), 2, "InvalidValue: --to is 'tomorrow' · valid: earliest, "),
        (("--from", "-0"), 2, "InvalidValue: --from is"),
        (("--from", "-10000000"), 2, "InvalidValue: --from is"),
        (("--from", "@noon"), 2, "InvalidValue: --from is '@noon' · valid: @ and ISO 8601"),
        (("--to", "orders/0.0@x"), 2, "InvalidValue: --to is 'orders/0.0@x'"),
        (("--from", "other/0.0@0"), 2, "InvalidValue"),
        (("--from", "orders/7.0@0"), 2, "InvalidValue"),
        (("--from", "orders/0.0@0", "--to", "orders/0.1@0"), 2, "InvalidValue"),
        (("--from", "orders/0.0@1000"), 1, "OutOfRange"),
        (("--to", "orders/0.0@1000"), 1, "OutOfRange"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_invalid_offset_specs_are_errors(
    cli: CommandLine, edges: tuple[str, ...], status: int, error: str
) -> None:
    assert error in cli.run("tail", "orders", "--exit", *edges, status=status).stderr


@pytest.mark.parametrize(
    ("place", "valid"),
    [("bogus", "earliest, latest, @"), ("@noon", "@ and ISO 8601"), ("x/0.0@1", "a position in ")],
)
def test_the_start_of_a_new_group_is_checked_under_its_option_name(
    cli: CommandLine, place: str, valid: str
) -> None:
    error = cli.run("tail", "orders", "--group", "new", "--from", place, status=2).stderr
    assert error.startswith(f"InvalidValue: --from is '{place}' · valid: {valid}")


def test_tail_of_a_filter_needs_a_group(cli: CommandLine) -> None:
    error = cli.run("tail", "ord*", "--exit", status=2).stderr
    assert "'ord*' is a filter" in error
    assert "add --group NAME, or name one topic" in error


def test_a_count_ends_it_without_exit(cli: CommandLine) -> None:
    lines = cli.run("tail", "orders", "--from", "earliest", "-n", "7").stdout.splitlines()
    assert len(lines) == 7


def test_json_lines_have_all_of_a_message(cli: CommandLine) -> None:
    cli.run("push", "orders", '{"total": 9.5}', "--key", "c7", "--header", "origin=web")
    (line,) = cli.tail("orders", "--from", "-1", "-o", "json")
    message = json.loads(line)
    assert message["id"].startswith("orders/1.")
    assert message["key"] == "c7"
    assert message["headers"] == {"origin": "web"}
    assert (message["form"], message["value"]) == ("json", {"total": 9.5})


def test_json_lines_keep_values_that_are_not_json(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        mixed = hub.create_topic("mixed", partitions=1)
        mixed.push("text")
        mixed.push(b"\xff\x00")
        mixed.push(b"readable", key=b"\xfe")
    found = [json.loads(line) for line in cli.tail("mixed", "-o", "json")]
    assert [(message["form"], message["value"]) for message in found] == [
        ("text", "text"),
        ("base64", "/wA="),
        ("text", "readable"),
    ]
    assert found[2]["key"] == "\\xfe"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%v", b"hi\n"),
        (r"%v\n", b"hi\n"),
        (r"%v\0", b"hi\0"),
        (r"%k=%v\t%%\\", b"c7=hi\t%\\\n"),
        ("%p@%o", b"notes/0.0@0\n"),
        ("%t", b"2026-01-01T12:00:00.000+00:00\n"),
        ("%h", b"a=1,b=2\n"),
        ("", b"\n"),
    ],
)
def test_a_format_prints_the_fields_it_names(tmp_path: Path, text: str, printed: bytes) -> None:
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        notes = hub.create_topic("notes", str, partitions=1)
        notes.push("hi", key="c7", headers={"a": "1", "b": "2"}, timestamp=NOON)
    assert cli.run("tail", "notes", "--exit", "-f", text).stdout_bytes == printed


@pytest.mark.parametrize("text", ["%q", "100%", r"\q", "\\"])
def test_an_invalid_format_is_a_usage_error(cli: CommandLine, text: str) -> None:
    cli.run("tail", "orders", "--exit", "-f", text, status=2)


def test_a_format_and_json_exclude_each_other(cli: CommandLine) -> None:
    cli.run("tail", "orders", "--exit", "-f", "%v", "-o", "json", status=2)


def test_the_help_says_what_a_group_acknowledges_in_a_pipe(cli: CommandLine) -> None:
    shown = " ".join(cli.run("tail", "--help").stdout.split())
    assert "A message counts as printed once it is written to the pipe" in shown
    assert "Use -n to limit the number." in shown
