"""Dead letters: parked, listed, redelivered and discarded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.backend.contract import Transaction
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.operations.audit import read_audit, read_discarded
from tailrace.operations.dead_letters.listing import (
    count_letters,
    group_letters,
    list_letters,
    show_letters,
)
from tailrace.operations.dead_letters.resolve import discard, redeliver
from tailrace.operations.pipeline.forget import forget
from tailrace.operations.pipeline.lookup import find_pipeline
from tailrace.operations.source.describe import view_source
from tailrace.source.encoded_batch import SourceOutput
from tailrace.source.reader import BadRecord
from tailrace.source.source import Source
from tests.support.pipelines.lake import Lake
from tests.support.sources.split_reader import SplitReader


@pytest.fixture
def parked(lake: Lake) -> Lake:
    """A lake with three letters: records 3, 7 and 11."""
    lake.options = {"on_error": "park"}
    lake.refuse(3, 7, 11)
    assert lake.run()
    return lake


def unreadable(lake: Lake) -> None:
    """Store a dead letter of the reader, as its run does."""
    log, dead = lake.hub.topic("lake.commits"), lake.hub.topic("lake.dead-letters")
    letter = SourceOutput("lake", log, dead).letter(
        BadRecord("A", "in.jsonl:7", "no JSON", b"{"), 0
    )
    target = dead.view.target.partition_of(letter.key)
    lake.hub.backend.commit(Transaction(((target, (letter,)),)))


def test_letters_have_writer_position_and_error(parked: Lake) -> None:
    letters = list_letters(parked.hub, "lake/crm", 100)
    assert [letter.origin for letter in letters] == [f"lake.commits/0.0@{n}" for n in (3, 7, 11)]
    first = letters[0]
    assert (first.position, first.consumer) == ("lake.dead-letters/0.0@0", "lake/crm")
    assert "refused because of 3" in first.error
    assert (first.namespace, first.op, first.mode) == ("A", "insert", "copy")
    assert bytes(first.value) == b'{"n":3}'
    assert len(list_letters(parked.hub, "lake", 2)) == 2


def test_letters_are_grouped_by_their_error_whatever_numbers_are_in_it(parked: Lake) -> None:
    unreadable(parked)
    groups = group_letters(parked.hub, "lake")
    assert [(group.consumer, group.count) for group in groups] == [("lake/crm", 3), ("lake", 1)]
    assert groups[0].first == "lake.dead-letters/0.0@0"
    assert groups[1].error == "no JSON"
    assert count_letters(parked.hub, find_pipeline(parked.hub, "lake")) == {
        "lake/crm": 3,
        "lake": 1,
    }


def test_a_redelivered_letter_reaches_its_writer_alone_and_is_no_longer_pending(
    lake: Lake,
) -> None:
    lake.writers = ("crm", "files")
    lake.options = {"on_error": "park"}
    lake.refuse(3, 7)
    assert lake.run()
    lake.refuse()
    done = redeliver(lake.hub, "lake/crm", ["lake.commits/0.0@7"], "the CRM is back")
    assert done.letters == ("lake.dead-letters/0.0@1",)
    assert lake.run()
    assert lake.delivered() == [*(n for n in range(16) if n not in (3, 7)), 16]
    assert lake.delivered("files") == list(range(16))
    assert [letter.origin for letter in list_letters(lake.hub, "lake", 100)] == [
        "lake.commits/0.0@3"
    ]
    with pytest.raises(InvalidValue, match="tailrace dlq lake/crm list"):
        redeliver(lake.hub, "lake/crm", ["lake.commits/0.0@7"])
    (entry,) = read_audit(lake.hub, "lake/crm", 20)
    assert (entry.command, entry.reason) == ("dlq redeliver", "the CRM is back")
    assert entry.before["records"] == ["lake.commits/0.0@7"]


def test_all_letters_are_redelivered_in_order_and_those_that_fail_again_are_letters_again(
    parked: Lake,
) -> None:
    parked.refuse(17)
    assert len(redeliver(parked.hub, "lake", None).letters) == 3
    assert parked.run()
    assert parked.delivered()[-2:] == [16, 18]
    (letter,) = list_letters(parked.hub, "lake", 100)
    assert letter.origin == "lake.commits/0.0@17"
    assert bytes(letter.value) == b'{"n":7}'


def test_a_discarded_letter_is_no_longer_pending_and_its_reason_is_kept(parked: Lake) -> None:
    done = discard(parked.hub, "lake/crm", ["0", "lake.dead-letters/0.0@2"], "test orders")
    assert len(done.letters) == 2
    (left,) = list_letters(parked.hub, "lake/crm", 100)
    assert left.origin == "lake.commits/0.0@7"
    (entry,) = read_audit(parked.hub, None, 20)
    assert (entry.command, entry.reason) == ("dlq discard", "test orders")
    named = read_discarded(parked.hub, "lake/crm", 20)
    assert [each.message for each in named] == ["lake.commits/0.0@3", "lake.commits/0.0@11"]
    assert {each.reason for each in named} == {"test orders"}
    with pytest.raises(InvalidValue, match="reason"):
        discard(parked.hub, "lake/crm", ["1"], "")


def test_an_unreadable_record_can_only_be_discarded(parked: Lake) -> None:
    unreadable(parked)
    with pytest.raises(InvalidValue, match="could not be read"):
        redeliver(parked.hub, "lake", ["0", "3"])
    assert len(redeliver(parked.hub, "lake", None).letters) == 3
    (letter,) = list_letters(parked.hub, "lake", 100)
    assert (letter.consumer, letter.origin) == ("lake", "in.jsonl:7")
    discard(parked.hub, "lake", ["3"], "a cut line")
    assert list_letters(parked.hub, "lake", 100) == []


def test_a_letter_of_a_removed_writer_stays_pending_until_it_is_discarded(lake: Lake) -> None:
    lake.writers = ("crm", "files")
    lake.options = {"on_error": "park"}
    lake.refuse(3, 7)
    assert lake.run()
    forget(lake.hub, "lake/crm")
    end = lake.hub.backend.log.bounds(Partition("lake.commits", 0, 0)).end
    with pytest.raises(InvalidValue, match=r"lake/crm was removed.*tailrace dlq lake discard"):
        redeliver(lake.hub, "lake", ["lake.commits/0.0@7"])
    assert redeliver(lake.hub, "lake", None).letters == ()
    assert lake.hub.backend.log.bounds(Partition("lake.commits", 0, 0)).end == end
    assert len(list_letters(lake.hub, "lake", 100)) == 2
    discard(lake.hub, "lake", ["0", "1"], "the writer was removed")
    assert list_letters(lake.hub, "lake", 100) == []


def test_a_position_without_a_pending_letter_is_refused_before_anything_is_redelivered(
    parked: Lake,
) -> None:
    with pytest.raises(InvalidValue, match="'9'"):
        redeliver(parked.hub, "lake/crm", ["0", "9"])
    assert len(list_letters(parked.hub, "lake/crm", 100)) == 3
    assert read_audit(parked.hub, None, 20) == []


def test_a_letter_is_shown_with_its_headers(parked: Lake, tmp_path: Path) -> None:
    (letter,) = show_letters(parked.hub, "lake/crm", ["lake.commits/0.0@7"])
    assert letter.headers == {}
    assert letter.form == "json"


def test_letters_of_a_source_are_listed_and_discarded_but_not_redelivered(lake: Lake) -> None:
    shop = Source("shop", SplitReader())
    shop.run(lake.hub, once=True)
    log, dead = (lake.hub.topic(name) for name in (shop.commit_log, shop.dead_letters))
    bad = BadRecord("A", "in.jsonl:7", "no JSON", b"{")
    letter = SourceOutput("shop", log, dead).letter(bad, 0)
    target = dead.view.target.partition_of(letter.key)
    lake.hub.backend.commit(Transaction(((target, (letter,)),)))
    for name in ("shop", "source:shop"):
        (found,) = list_letters(lake.hub, name, 100)
        assert (found.origin, found.error, found.consumer) == ("in.jsonl:7", "no JSON", "shop")
    assert redeliver(lake.hub, "shop", None).letters == ()
    with pytest.raises(InvalidValue, match="could not be read · correct the source, or discard"):
        redeliver(lake.hub, "shop", ["0"])
    assert view_source(lake.hub, "shop").unreadable == 1
    discard(lake.hub, "shop", ["0"], "a test")
    assert view_source(lake.hub, "shop").unreadable == 0
    with pytest.raises(InvalidValue, match=r"did you mean 'shop'\?"):
        list_letters(lake.hub, "shopp", 1)
