"""`tailrace push`: lines become messages, and a line that does not fit is named."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.cli.push import StopSignal, lines_of
from tailrace.errors import MessageTooLarge
from tailrace.operations.pushing import LineForm, PushEnd, push_lines
from tests.cli import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "hub")
    cli.run("topic", "create", "orders", "-p", "1")
    cli.run("topic", "create", "notes", "-p", "1", "--type", "text")
    return cli


def test_each_line_is_a_message(cli: CommandLine) -> None:
    pushed = cli.run("push", "orders", stdin='{"id": 1}\n{"id": 2}\n')
    assert "stored 2 messages in orders" in pushed.stderr
    assert pushed.stdout == ""
    assert cli.tail("orders") == ['{"id": 1}', '{"id": 2}']


def test_the_last_line_needs_no_newline(cli: CommandLine) -> None:
    cli.run("push", "notes", stdin="one\ntwo")
    assert cli.tail("notes") == ["one", "two"]


def test_the_key_stands_before_the_first_separator(cli: CommandLine) -> None:
    cli.run("push", "notes", "-K:", stdin="c7:a:b\nc8:c\n")
    assert cli.tail("notes", "-f", "%k %v") == ["c7 a:b", "c8 c"]


def test_values_may_be_arguments_with_one_key_and_headers(cli: CommandLine) -> None:
    cli.run("push", "notes", "hi", "there", "--key", "c7", "-H", "a=1", "-H", "b=x=y")
    assert cli.tail("notes", "-f", "%k %v %h") == ["c7 hi a=1,b=x=y", "c7 there a=1,b=x=y"]


def test_a_stored_line_is_the_line_itself(cli: CommandLine) -> None:
    cli.run("push", "orders", stdin='{"b":  1.10, "a": 12345678901234567890123}\n')
    assert cli.tail("orders") == ['{"b":  1.10, "a": 12345678901234567890123}']
    line = cli.run("tail", "orders", "--exit", "-o", "json").stdout
    assert '{"b":1.10,"a":12345678901234567890123}' in line.replace(": ", ":").replace(", ", ",")


def test_a_line_that_is_not_of_the_type_is_named_and_all_before_it_are_stored(
    cli: CommandLine,
) -> None:
    pushed = cli.run("push", "orders", stdin="1\n2\nthree\n4\n", status=1)
    assert "EncodeError: line 3: not JSON" in pushed.stderr
    assert "stored 2 messages" in pushed.stderr
    assert cli.tail("orders") == ["1", "2"]


def test_a_line_of_text_that_is_not_utf_8_is_named(cli: CommandLine) -> None:
    pushed = cli.run("push", "notes", stdin=b"good\n\xff\n", status=1)
    assert "line 2: not UTF-8" in pushed.stderr


def test_a_line_over_the_limit_is_named(cli: CommandLine) -> None:
    small = {"TAILRACE_HUB__MESSAGE_BYTES_MAX": "10B"}
    pushed = cli.run("push", "notes", stdin="short\n" + "x" * 11 + "\n", status=1, env=small)
    assert "MessageTooLarge: line 2: a message has 11 bytes" in pushed.stderr
    assert cli.tail("notes") == ["short"]


def test_a_line_without_the_separator_is_named(cli: CommandLine) -> None:
    pushed = cli.run("push", "notes", "-K:", stdin="c7:a\nb\n", status=1)
    assert "line 2" in pushed.stderr
    assert "KEY:VALUE" in pushed.stderr


def test_a_failure_of_the_hub_ends_a_push_with_what_is_stored(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders")

        def lines() -> Iterator[bytes]:
            yield b"1"
            hub.delete_topic("orders")
            yield b"2"

        report = push_lines(topic, lines(), LineForm())
    assert report.end is PushEnd.FAILED
    assert report.reason.startswith("UnknownTopic")
    assert report.stored <= 1


def test_empty_lines_between_documents_are_no_messages(cli: CommandLine) -> None:
    cli.run("push", "orders", stdin="1\n\n  \n2\n\n")
    assert cli.tail("orders") == ["1", "2"]


def test_an_empty_line_is_an_empty_text(cli: CommandLine) -> None:
    cli.run("push", "notes", stdin="a\n\nb\n")
    assert cli.tail("notes") == ["a", "", "b"]


def test_json_says_how_many_were_stored_and_where_the_last_is(cli: CommandLine) -> None:
    report = cli.json("push", "orders", "1", "2")
    assert (report["end"], report["stored"], report["last"]) == ("done", 2, "orders/0.0@1")


def test_an_unknown_topic_takes_no_lines(cli: CommandLine) -> None:
    assert "UnknownTopic" in cli.run("push", "order", stdin="1\n", status=1).stderr


def test_with_auto_create_a_push_makes_the_topic_and_the_hub(tmp_path: Path) -> None:
    fresh = CommandLine(tmp_path / "fresh")
    fresh.run("push", "orders", stdin="1\n", env={"TAILRACE_HUB__AUTO_CREATE": "true"})
    assert fresh.tail("orders") == ["1"]


@pytest.mark.parametrize(
    "options",
    [("-K:", "--key", "c7"), ("-K", ""), ("--header", "no-equals-sign"), ("--header", "=text")],
)
def test_options_that_make_no_sense_are_usage_errors(
    cli: CommandLine, options: tuple[str, ...]
) -> None:
    cli.run("push", "notes", "value", *options, status=2)
    assert cli.tail("notes") == []


def test_lines_come_whole_whatever_the_reads_are() -> None:
    class Dribble(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return self.read(2)

    lines = lines_of(Dribble(b"one\ntwo\r\n\nthree"), StopSignal(), 10)
    assert list(lines) == [b"one", b"two\r", b"", b"three"]


def test_a_line_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    class Endless(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return self.read(5) or b"x" * 100

    with pytest.raises(MessageTooLarge, match="line 3 has"):
        list(lines_of(Endless(b"a\nb\n"), StopSignal(), 1000))
