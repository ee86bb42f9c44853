"""Attempts are stored under the origin of a message, and judged by the next owner."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.attempts import (
    DIED,
    FAILURE_CHARACTERS_MAX,
    FAILURES_MAX,
    Attempts,
    Begun,
    Origin,
    attempts_key,
    attempts_prefix,
    decode_attempts,
    encode_attempts,
    origin_of_key,
    taken_over,
)

WHERE = Partition("orders", 1, 7)


@pytest.mark.parametrize("origin", [Origin(WHERE, 42), Origin(WHERE, 42, 3)])
def test_an_origin_is_written_as_people_read_it(origin: Origin) -> None:
    assert Origin.parse(str(origin)) == origin
    assert str(origin) == ("orders/1.7@42+r3" if origin.reset else "orders/1.7@42")


@pytest.mark.parametrize("text", ["orders/1.7", "orders/1.7@x", "orders/1.7@4+r", "orders@3", ""])
def test_other_text_is_no_origin(text: str) -> None:
    with pytest.raises(InvalidValue):
        Origin.parse(text)


def test_the_keys_of_a_partition_are_in_the_order_of_offsets() -> None:
    origins = [Origin(WHERE, offset) for offset in (0, 9, 10, 1 << 40)]
    keys = [attempts_key("crm", origin).key for origin in origins]
    assert keys == sorted(keys)
    assert [origin_of_key(key) for key in keys] == origins
    assert all(key.startswith(attempts_prefix(WHERE)) for key in keys)
    assert not keys[0].startswith(attempts_prefix(Partition("orders", 1, 70)))


def test_attempts_without_content_are_removed() -> None:
    assert encode_attempts(Attempts()) is None
    begun = Attempts().begin(Begun.SHARED, "w1")
    stored = encode_attempts(begun)
    assert stored is not None
    assert decode_attempts(stored) == begun


def test_a_failure_keeps_the_time_of_the_first_one() -> None:
    first = Attempts().failed("no stock", 1000, 2000)
    second = first.begin(Begun.SHARED).failed("no answer", 3000, 4000)
    assert (second.count, second.due_ms, second.begun) == (2, 4000, Begun.NO)
    assert (second.error, second.since_ms) == ("no answer", 1000)


def test_the_last_failures_are_kept_with_their_times() -> None:
    attempts = Attempts()
    for number in range(1, FAILURES_MAX + 4):
        attempts = attempts.begin(Begun.SHARED).failed(f"{number}" * 300, number)
    assert attempts.count == FAILURES_MAX + 3
    assert [each.at_ms for each in attempts.failures] == list(range(4, FAILURES_MAX + 4))
    assert attempts.failures[0].error == "4" * FAILURE_CHARACTERS_MAX
    stored = encode_attempts(attempts.park())
    assert stored is not None
    assert decode_attempts(stored) == attempts.park()


def test_attempts_that_an_earlier_version_stored_have_no_failures() -> None:
    assert decode_attempts(b'{"count":2,"error":"no stock"}').failures == ()


def test_an_entry_without_a_delay_waits_at_most_the_longest_of_the_policy() -> None:
    stored = decode_attempts(b'{"count":1,"due_ms":90000,"begun":"no","error":"","since_ms":1}')
    assert stored.wait_s(1_000, 600.0) == 89.0
    assert stored.wait_s(1_000, 5.0) == 5.0
    assert stored.wait_s(90_000, 5.0) == 0.0


@pytest.mark.parametrize(
    ("begun", "ended", "count", "suspect"),
    [
        (Begun.NO, {"w1"}, 1, False),
        (Begun.SHARED, {"w1"}, 1, True),
        (Begun.ALONE, {"w1"}, 2, True),
        (Begun.ALONE, set[str](), 1, True),
    ],
)
def test_a_call_counts_if_it_was_alone_in_a_process_that_ended(
    begun: Begun, ended: set[str], count: int, suspect: bool
) -> None:
    found = taken_over(Attempts(1, error="no stock").begin(begun, "w1"), ended)
    assert (found.attempts.count, found.suspect) == (count, suspect)
    assert found.attempts.begun is Begun.NO
    assert (found.attempts.error == DIED) == (count == 2)


def test_a_dead_letter_that_ended_its_worker_alone_has_failed_for_that_request() -> None:
    begun = Attempts(3, error="no stock").begin(Begun.ALONE, "w1", "r1")
    attempts, suspect = taken_over(begun, {"w1"})
    assert (attempts.count, attempts.error, attempts.request, suspect) == (4, DIED, "r1", True)
    assert attempts.begun is Begun.NO
    assert taken_over(attempts, {"w1"}) == (attempts, False)


@pytest.mark.parametrize("begun", [Begun.SHARED, Begun.ALONE])
def test_a_dead_letter_whose_worker_lives_or_was_not_alone_has_not_failed(begun: Begun) -> None:
    ended = {"w1"} if begun is Begun.SHARED else set()
    attempts, suspect = taken_over(Attempts(3).begin(begun, "w1", "r1"), ended)
    assert (attempts, suspect) == (Attempts(3), True)


def test_the_text_of_any_error_can_be_stored() -> None:
    failed = Attempts().failed("OSError: no file \udcff " + "x" * 5000, 1)
    stored = decode_attempts(encode_attempts(failed) or b"")
    assert stored == failed
    assert stored.error.startswith("OSError: no file \\udcff x")
    assert len(stored.error) < 1100


def test_an_owner_forgets_the_attempts_of_a_dead_letter_once_they_are_stored() -> None:
    book, origin = AttemptBook({}, (), 0.0, 0, 5.0), Origin(WHERE, 42)
    first = Attempts().failed("no stock", 1).park()
    book.put(origin, first)
    second = first.failed("no stock", 2).park()
    book.put(origin, second)
    book.stored(origin, first)
    assert book.get(origin) is second, "it has failed again meanwhile"
    book.stored(origin, second)
    assert origin not in book
    waiting = Attempts().failed("no stock", 1)
    book.put(origin, waiting)
    book.stored(origin, waiting)
    assert book.get(origin) is waiting
