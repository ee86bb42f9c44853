"""Dead letters: parked, looked at, sent again, given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.backend.contract import Transaction
from tailrace.errors import InvalidValue
from tailrace.operations.audit import read_audit
from tailrace.operations.dead_letters import discard, redeliver
from tailrace.operations.letters import (
    count_letters,
    group_letters,
    list_letters,
    show_letters,
)
from tailrace.operations.registered import find_pipeline
from tailrace.source.delivery import Outlet
from tailrace.source.reader import BadRecord
from tests.unit.operations.desk import Desk


@pytest.fixture
def parked(desk: Desk) -> Desk:
    """A desk with three letters: records 3, 7 and 11."""
    desk.options = {"on_error": "park"}
    desk.refuse(3, 7, 11)
    assert desk.run()
    return desk


def unreadable(desk: Desk) -> None:
    """A letter of the reader, as its run stores them."""
    log, dead = desk.hub.topic("lake.commits"), desk.hub.topic("lake.dead-letters")
    letter = Outlet("lake", log, dead).letter(BadRecord("A", "in.jsonl:7", "no JSON", b"{"), 0)
    target = dead.view.target.partition_of(letter.key)
    desk.hub.backend.commit(Transaction(((target, (letter,)),)))


def test_letters_say_whose_they_are_where_they_were_and_why(parked: Desk) -> None:
    letters = list_letters(parked.hub, "lake/crm", 100)
    assert [letter.origin for letter in letters] == [f"lake.commits/0.0@{n}" for n in (3, 7, 11)]
    first = letters[0]
    assert (first.position, first.consumer) == ("lake.dead-letters/0.0@0", "lake/crm")
    assert "refused because of 3" in first.error
    assert (first.namespace, first.op, first.mode) == ("A", "insert", "copy")
    assert bytes(first.value) == b'{"n":3}'
    assert len(list_letters(parked.hub, "lake", 2)) == 2


def test_letters_are_grouped_by_their_error_whatever_numbers_are_in_it(parked: Desk) -> None:
    unreadable(parked)
    groups = group_letters(parked.hub, "lake")
    assert [(group.consumer, group.count) for group in groups] == [("lake/crm", 3), ("lake", 1)]
    assert groups[0].first == "lake.dead-letters/0.0@0"
    assert groups[1].error == "no JSON"
    assert count_letters(parked.hub, find_pipeline(parked.hub, "lake")) == {
        "lake/crm": 3,
        "lake": 1,
    }


def test_a_letter_that_is_sent_again_reaches_its_writer_alone_and_waits_no_more(
    desk: Desk,
) -> None:
    desk.writers = ("crm", "files")
    desk.options = {"on_error": "park"}
    desk.refuse(3, 7)
    assert desk.run()
    desk.refuse()
    done = redeliver(desk.hub, "lake/crm", ["lake.commits/0.0@7"])
    assert done.letters == ("lake.dead-letters/0.0@1",)
    assert desk.run()
    assert desk.given() == [*(n for n in range(16) if n not in (3, 7)), 16]
    assert desk.given("files") == list(range(16))
    assert [letter.origin for letter in list_letters(desk.hub, "lake", 100)] == [
        "lake.commits/0.0@3"
    ]
    with pytest.raises(InvalidValue, match="tailrace dlq lake/crm list"):
        redeliver(desk.hub, "lake/crm", ["lake.commits/0.0@7"])
    (entry,) = read_audit(desk.hub, "lake/crm", 20)
    assert entry.command == "dlq redeliver"
    assert entry.before["records"] == ["lake.commits/0.0@7"]


def test_all_letters_are_sent_again_in_order_and_what_fails_again_is_a_letter_again(
    parked: Desk,
) -> None:
    parked.refuse(17)
    assert len(redeliver(parked.hub, "lake", None).letters) == 3
    assert parked.run()
    assert parked.given()[-2:] == [16, 18]
    (letter,) = list_letters(parked.hub, "lake", 100)
    assert letter.origin == "lake.commits/0.0@17"
    assert bytes(letter.value) == b'{"n":7}'


def test_a_discarded_letter_waits_no_more_and_the_reason_is_kept(parked: Desk) -> None:
    done = discard(parked.hub, "lake/crm", ["0", "lake.dead-letters/0.0@2"], "test orders")
    assert len(done.letters) == 2
    (left,) = list_letters(parked.hub, "lake/crm", 100)
    assert left.origin == "lake.commits/0.0@7"
    (entry,) = read_audit(parked.hub, None, 20)
    assert (entry.command, entry.reason) == ("dlq discard", "test orders")
    with pytest.raises(InvalidValue, match="reason"):
        discard(parked.hub, "lake/crm", ["1"], "")


def test_what_could_not_be_read_can_only_be_discarded(parked: Desk) -> None:
    unreadable(parked)
    with pytest.raises(InvalidValue, match="could not be read"):
        redeliver(parked.hub, "lake", ["0", "3"])
    assert len(redeliver(parked.hub, "lake", None).letters) == 3
    (letter,) = list_letters(parked.hub, "lake", 100)
    assert (letter.consumer, letter.origin) == ("lake", "in.jsonl:7")
    discard(parked.hub, "lake", ["3"], "a cut line")
    assert list_letters(parked.hub, "lake", 100) == []


def test_a_position_that_is_no_waiting_letter_is_refused_before_anything_is_sent(
    parked: Desk,
) -> None:
    with pytest.raises(InvalidValue, match="'9'"):
        redeliver(parked.hub, "lake/crm", ["0", "9"])
    assert len(list_letters(parked.hub, "lake/crm", 100)) == 3
    assert read_audit(parked.hub, None, 20) == []


def test_a_letter_is_shown_with_its_headers(parked: Desk, tmp_path: Path) -> None:
    (letter,) = show_letters(parked.hub, "lake/crm", ["lake.commits/0.0@7"])
    assert letter.headers == {}
    assert letter.form == "json"
