"""A breaker is given as a value or as text, and divided among shards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tailrace import Breaker, InvalidValue
from tailrace.delivery.load_control import UNLIMITED, LoadControl, parse_load

DEFAULT = Breaker(100, ratio=0.5, window=timedelta(minutes=10))


def test_the_default_is_that_of_subscriptions_without_one() -> None:
    assert Breaker() == DEFAULT
    assert LoadControl().breaker == DEFAULT
    assert UNLIMITED.breaker is None


@pytest.mark.parametrize(
    ("text", "breaker"),
    [
        ("on", DEFAULT),
        ("run=7", Breaker(7)),
        ("run=7,ratio=30%,window=5m", Breaker(7, ratio=0.3, window="5m")),
        ("window = 90s, ratio = 12.5%", Breaker(ratio=0.125, window="90s")),
    ],
)
def test_text_names_the_parts_that_differ_from_the_default(text: str, breaker: Breaker) -> None:
    assert Breaker.parse(text) == breaker
    assert Breaker.parse(str(breaker)) == breaker


@pytest.mark.parametrize(
    ("wrong", "valid"),
    [
        ("", "run=50,ratio=30%"),
        ("many", "run=50,ratio=30%"),
        ("run=7,run=8", "run=50,ratio=30%"),
        ("limit=7", "run=50,ratio=30%"),
        ("run=0", "run 1 to 1,000,000"),
        ("run=x", "run 1 to 1,000,000"),
        ("ratio=0%", "ratio more than 0% and at most 100%"),
        ("ratio=120%", "ratio more than 0% and at most 100%"),
        ("window=10", "window a timedelta or text such as"),
        ("window=10ms", "window 1s or longer"),
        (7, "a tailrace.Breaker"),
    ],
)
def test_what_is_no_breaker_is_refused_with_what_is_valid(wrong: Any, valid: str) -> None:
    with pytest.raises(InvalidValue, match=f"^breaker is {wrong!r} .*{valid}"):
        Breaker.parse(wrong)
    with pytest.raises(InvalidValue, match=f"^breaker is .*{valid}"):
        parse_load(breaker=wrong)


def test_load_control_keeps_the_breaker_that_is_given() -> None:
    load = parse_load(breaker=Breaker(7, ratio="30%", window="5m")).applied(LoadControl(10))
    assert load.breaker == Breaker(7, ratio=0.3, window="5m")
    assert load.concurrency_total == 10
    assert parse_load(breaker="off").applied(load).breaker is None
    assert parse_load(concurrency_total=20).applied(load).breaker == load.breaker
    assert parse_load(**load.options).applied(UNLIMITED) == load


@pytest.mark.parametrize(
    ("run", "shards", "part"), [(100, 1, 100), (100, 4, 25), (100, 12, 20), (5, 12, 5), (7, 2, 7)]
)
def test_a_shard_has_its_part_of_the_run_but_not_so_few_that_chance_could_pause(
    run: int, shards: int, part: int
) -> None:
    assert Breaker(run).of_shard(shards) == Breaker(part)
