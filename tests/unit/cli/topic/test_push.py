"""`tailrace push`: lines become messages, and an invalid line is named."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.cli.topic.push import StopSignal, lines_of
from tailrace.errors import MessageTooLarge
from tailrace.operations.topic.push import LineForm, PushEnd, push_lines
from tests.support.command_line import CommandLine


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


def test_the_key_is_the_text_before_the_first_separator(cli: CommandLine) -> None:
    cli.run("push", "notes", "-K:", stdin="c7:a:b\nc8:c\n")
    assert cli.tail("notes", "-f", "%k %v") == ["c7 a:b", "c8 c"]


def test_values_may_be_arguments_with_one_key_and_headers(cli: CommandLine) -> None:
    cli.run("push", "notes", "hi", "there", "--key", "c7", "-H", "a=1", "-H", "b=x=y")
    assert cli.tail("notes", "-f", "%k %v %h") == ["c7 hi a=1,b=x=y", "c7 there a=1,b=x=y"]


def test_a_line_has_the_key_that_its_topic_is_ordered_by(cli: CommandLine) -> None:
    cli.run("topic", "create", "sorted", "-p", "1", "--order-by", "customer.id")
    lines = '{"customer": {"id": "c7"}}\n{"customer": {"id": 8}}\n{"customer": {}}\n'
    pushed = cli.run("push", "sorted", stdin=lines, status=1)
    assert "line 3: the topic is ordered by customer.id: Object missing" in pushed.stderr
    assert cli.tail("sorted", "-f", "%k") == ["c7", "8"]


def test_a_reserved_header_is_refused_by_name_and_nothing_is_stored(cli: CommandLine) -> None:
    pushed = cli.run("push", "notes", "hi", "-H", "tailrace.for=billing", status=1)
    assert "the header name 'tailrace.for' is reserved" in pushed.stderr
    assert "valid: any name that does not begin with 'tailrace.'" in pushed.stderr
    assert cli.tail("notes") == []


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


def test_an_argument_that_is_not_of_the_type_is_called_a_value(cli: CommandLine) -> None:
    pushed = cli.run("push", "orders", "1", "two", status=1)
    assert "EncodeError: value 2: not JSON" in pushed.stderr
    assert "the value is" in cli.run("push", "orders", "-K:", "1", status=1).stderr


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


def test_a_failure_of_the_hub_ends_a_push_with_the_number_stored(tmp_path: Path) -> None:
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


def test_json_output_has_the_number_stored_and_the_last_position(cli: CommandLine) -> None:
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


def test_lines_arrive_whole_however_the_input_is_cut() -> None:
    class Dribble(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return self.read(2)

    lines = lines_of(Dribble(b"one\ntwo\r\n\nthree"), StopSignal(), 8, 2)
    assert list(lines) == [b"one", b"two\r", b"", b"three"]


def test_a_line_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    class Endless(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return self.read(5) or b"x" * 100

    with pytest.raises(MessageTooLarge) as refused:
        list(lines_of(Endless(b"a\nb\n"), StopSignal(), 800, 200))
    assert str(refused.value) == (
        "line 3 has more than 2,024 bytes · valid: up to 800 (hub.message_bytes_max, and 200 for"
        " its key: hub.key_bytes_max) · nothing was written"
    )


def test_the_help_says_that_an_empty_key_is_no_key(cli: CommandLine) -> None:
    cli.run("topic", "create", "keyless")
    cli.run("push", "keyless", ":1", "-K:")
    assert cli.json("tail", "keyless", "--exit")["key"] is None
    shown = " ".join(cli.run("push", "--help").stdout.split())
    assert "An empty key (--key '', or a line that begins with SEP) is no key" in shown
