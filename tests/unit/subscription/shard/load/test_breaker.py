"""Dead letters trip a breaker if they are many in a row, or a large part of all messages."""

from __future__ import annotations

import pytest

from tailrace.delivery.breaker import Breaker
from tailrace.subscription.shard.load import breaker
from tailrace.subscription.shard.load.breaker import DeadLetterBreaker

MINUTE = 60.0


class Shard:
    """A breaker, and messages that end one after the other."""

    def __init__(self, run: int = 5, ratio: float = 0.5) -> None:
        self.breaker = DeadLetterBreaker(Breaker(run, ratio=ratio, window="10m"))
        self.now = 1000.0
        self.keys = 0

    def dies(self, times: int = 1, key: str | None = None, error: str = "down") -> str:
        for _ in range(times):
            self.keys += 1
            self.breaker.died(f"k{self.keys}" if key is None else key, error, self.now)
        return self.breaker.tripped

    def succeeds(self, messages: int = 1) -> None:
        self.breaker.succeeded(messages, self.now)


def test_as_many_in_a_row_trip_it_whatever_succeeded_before() -> None:
    shard = Shard()
    shard.succeeds(10_000)
    assert not shard.dies(4)
    assert shard.dies(error="HTTP 503\nmore") == (
        "5 messages in a row became dead letters; last error: HTTP 503"
    )


def test_a_success_between_begins_a_new_run() -> None:
    shard = Shard(ratio=1.0)
    for _ in range(20):
        assert not shard.dies(4)
        shard.succeeds()


def test_half_of_the_messages_trip_it_although_others_succeed_between() -> None:
    shard = Shard()
    for _ in range(4):
        assert not shard.dies()
        shard.succeeds()
    assert shard.dies() == "5 of the last 9 messages became dead letters; last error: down"


def test_a_small_part_of_the_messages_never_trips_it() -> None:
    shard = Shard()
    for _ in range(1000):
        shard.succeeds(2)
        assert not shard.dies()


def test_what_was_before_the_window_does_not_count() -> None:
    shard = Shard()
    shard.succeeds(100)
    shard.dies(3)
    shard.now += 10 * MINUTE
    shard.succeeds(1)
    assert not shard.dies(4)
    shard.succeeds(1)
    assert shard.dies().startswith("5 of the last 7 messages")


def test_a_run_has_no_end_but_a_success_within_the_window() -> None:
    shard = Shard()
    for _ in range(4):
        assert not shard.dies()
        shard.now += 9 * MINUTE
    assert shard.dies().startswith("5 messages in a row")


def test_dead_letters_of_one_key_count_once() -> None:
    shard = Shard()
    assert not shard.dies(10_000, key="c7")
    shard.dies(3)
    assert not shard.dies(1000, key="c7")
    assert shard.dies().startswith("5 messages in a row")


def test_a_pause_or_another_policy_begins_anew() -> None:
    shard = Shard()
    shard.dies(5)
    shard.breaker.reset()
    assert not shard.dies(4)
    shard.breaker.follow(Breaker(5, ratio=1.0))
    assert not shard.dies(4)
    shard.breaker.follow(Breaker(5, ratio=1.0))
    assert shard.dies()
    shard.breaker.follow(None)
    shard.succeeds()
    assert not shard.dies(100)


def test_the_memory_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "KEYS_MAX", 50)
    shard = Shard(run=200)
    for _ in range(300):
        shard.dies()
        shard.succeeds()
    assert len(shard.breaker._dead) == 50
