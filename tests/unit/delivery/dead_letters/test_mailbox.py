"""Dead letters of any topic: their origin, the pending ones, and resolving each once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.backend.contract import Transaction, raise_fence
from tailrace.delivery.dead_letters.letter import (
    CUT,
    DeadLetter,
    failed_record,
    redelivery,
    unreadable_record,
)
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.delivery.dead_letters.resolve import (
    LETTERS_PER_TRANSACTION_MAX,
    Append,
    redelivery_append,
    resolve,
)
from tailrace.errors import Busy, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.log.redelivered import FOR
from tailrace.message import Mode, Op, Partition
from tailrace.testing import MemoryBackend

ORDERS = Partition("orders", 0, 0)


@pytest.fixture
def hub() -> Hub:
    hub = Hub.from_backend(MemoryBackend())
    hub.create_topic("orders", partitions=2)
    hub.create_topic("letters", partitions=1)
    return hub


def record(offset: int) -> Record:
    headers = {"trace": b"7"}
    return Record(offset, 1000 + offset, Mode.SYNC, Op.UPDATE, b"c7", headers, b"{}")


def mailbox(hub: Hub, writer: str | None = None) -> Mailbox:
    return Mailbox(hub.topic("letters").view, writer or "all", writer)


def bury(hub: Hub, *offsets: int, consumer: str = "billing") -> None:
    letters = tuple(failed_record(record(n), ORDERS, consumer, f"no {n}", 5000) for n in offsets)
    target = hub.topic("letters").view.target.partitions[0]
    hub.backend.commit(Transaction(((target, letters),)))


def nothing(_: Sequence[DeadLetter]) -> list[Append]:
    return []


def test_a_letter_keeps_the_record_with_its_consumer_position_and_error(hub: Hub) -> None:
    bury(hub, 3)
    (letter,) = mailbox(hub).waiting()
    assert (letter.consumer, letter.writer) == ("billing", "billing")
    assert (letter.position, letter.origin) == ("letters/0.0@0", "orders/0.0@3")
    assert (letter.error, letter.record.timestamp) == ("no 3", 5000)
    assert letter.headers["trace"] == b"7"


def test_a_redelivered_record_is_the_failed_one_for_its_consumer_alone() -> None:
    again = redelivery(failed_record(record(3), ORDERS, "billing", "no", 5000), "billing")
    assert again == record(0)._replace(timestamp=1003, headers={"trace": b"7", FOR: b"billing"})


def test_a_redelivered_record_goes_to_the_partition_that_it_came_from(hub: Hub) -> None:
    failed = failed_record(record(3), Partition("orders", 0, 1), "billing", "no", 5000)
    letter = DeadLetter(Partition("letters", 0, 0), failed)
    orders = hub.topic("orders")
    assert redelivery_append(orders.view, letter)[0] == Partition("orders", 0, 1)
    orders.scale(4)
    partition, _ = redelivery_append(hub.topic("orders").view, letter)
    assert partition == Partition("orders", 1, hub.topic("orders").route("c7"))


def test_unreadable_data_that_is_too_long_is_cut_and_says_how_long_it_was() -> None:
    whole = unreadable_record("lake", "A", "in:7", "no", b"x" * 50, now_ms=0, bytes_max=1000)
    assert (whole.value, CUT in (whole.headers or {})) == (b"x" * 50, False)
    cut = unreadable_record("lake", "A", "in:7", "no", b"x" * 5000, now_ms=0, bytes_max=1000)
    assert 0 < len(cut.value) < 1000
    assert (cut.headers or {})[CUT] == b"5000"
    letter = DeadLetter(Partition("letters", 0, 0), cut)
    assert (letter.writer, letter.consumer, letter.origin) == (None, "lake", "in:7")


def test_a_mailbox_of_one_consumer_has_its_letters_alone(hub: Hub) -> None:
    bury(hub, 1, 2)
    bury(hub, 3, consumer="search")
    assert [each.origin for each in mailbox(hub, "search").waiting()] == ["orders/0.0@3"]
    assert mailbox(hub).count_by_writer() == {"billing": 2, "search": 1}
    with pytest.raises(InvalidValue, match="a pending dead letter of search"):
        mailbox(hub, "search").select(["orders/0.0@1"])


def test_letters_of_a_topic_that_was_scaled_are_found_oldest_first(hub: Hub) -> None:
    bury(hub, 1)
    hub.topic("letters").scale(2)
    letters = [failed_record(record(2), ORDERS, "billing", "no", 5000)]
    target = hub.topic("letters").view.target.partitions[1]
    hub.backend.commit(Transaction(((target, tuple(letters)),)))
    assert [each.position for each in mailbox(hub).waiting()] == ["letters/0.0@0", "letters/1.1@0"]


def test_a_letter_is_resolved_once_by_whichever_process(hub: Hub) -> None:
    bury(hub, 1, 2)
    both = list(mailbox(hub).waiting())
    assert resolve(mailbox(hub), both[:1], {}, nothing) == both[:1]
    assert resolve(mailbox(hub), both, {}, nothing) == both[1:]
    assert list(mailbox(hub).waiting()) == []


def test_many_letters_are_resolved_in_several_transactions(hub: Hub) -> None:
    bury(hub, *range(LETTERS_PER_TRANSACTION_MAX + 1))
    sizes: list[int] = []

    def appends(letters: Sequence[DeadLetter]) -> list[Append]:
        sizes.append(len(letters))
        return []

    resolve(mailbox(hub), list(mailbox(hub).waiting()), {}, appends)
    assert sizes == [LETTERS_PER_TRANSACTION_MAX, 1]


def test_a_process_that_others_fence_again_and_again_gives_up_and_resolves_nothing(
    hub: Hub,
) -> None:
    bury(hub, 1)

    def overtaken(_: Sequence[DeadLetter]) -> list[Append]:
        raise_fence(hub.backend.store, "dead-letters/letters")
        return []

    with pytest.raises(Busy, match="other processes"):
        resolve(mailbox(hub), list(mailbox(hub).waiting()), {}, overtaken)
    assert len(list(mailbox(hub).waiting())) == 1
