"""Load control is checked where it is given, and its parts add up."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.delivery.load_control import UNLIMITED, LoadControl, parse_load
from tailrace.delivery.throttle import Throttle
from tailrace.errors import InvalidValue


@pytest.mark.parametrize(("total", "shards"), [(10, 4), (4, 4), (7, 3), (1000, 12), (5, 1)])
def test_the_parts_of_the_shards_add_up_to_the_total_and_differ_by_at_most_one(
    total: int, shards: int
) -> None:
    load = parse_load(concurrency_total=total).applied(LoadControl())
    load.check(shards)
    parts = [load.concurrency_of(shard, shards) or 0 for shard in range(shards)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1
    assert min(parts) >= 1


def test_no_part_grows_when_the_total_falls() -> None:
    for shards in range(1, 9):
        for total in range(shards, 40):
            lower, higher = LoadControl(total), LoadControl(total + 1)
            for shard in range(shards):
                most = higher.concurrency_of(shard, shards)
                assert (lower.concurrency_of(shard, shards) or 0) <= (most or 0)


def test_without_a_total_only_workers_limit_the_calls_of_a_shard() -> None:
    assert LoadControl().concurrency_of(0, 4) is None


def test_a_total_below_the_number_of_shards_is_refused_with_the_valid_ones() -> None:
    load = LoadControl(concurrency_total=3)
    with pytest.raises(InvalidValue, match="is 3 · valid: 4 or more, one call for each of its"):
        load.check(4)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many", "", b"4"])
def test_a_total_that_is_no_number_of_calls_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match=r"concurrency_total .*a whole number, .* or 'off'"):
        parse_load(concurrency_total=wrong)


def test_what_is_not_given_stays_as_it_is_and_off_removes_a_part() -> None:
    held = LoadControl(concurrency_total=10)
    assert parse_load().applied(held) == held
    assert parse_load(concurrency_total=20).applied(held) == LoadControl(20)
    assert parse_load(concurrency_total="off").applied(held) == LoadControl()


@pytest.mark.parametrize("load", [LoadControl(), LoadControl(10)])
def test_the_options_of_load_control_make_any_other_the_same(load: LoadControl) -> None:
    for held in (LoadControl(), LoadControl(3)):
        assert parse_load(**load.options).applied(held) == load


@pytest.mark.parametrize(("given", "share"), [("10%", 0.1), (0.25, 0.25), ("100%", 1.0), (1, 1.0)])
def test_a_throttle_is_a_share(given: Any, share: float) -> None:
    load = parse_load(throttle=given).applied(UNLIMITED)
    assert load.throttle == share
    assert load.throttle_of(4) == Throttle(share, 250)
    assert parse_load(**load.options).applied(LoadControl()) == load


@pytest.mark.parametrize("wrong", ["", "10", "0%", "101%", 0, 1.5, -0.1, True, "ten", float("nan")])
def test_what_is_no_share_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^throttle is .* valid: more than 0% .* 'on' or 'off'"):
        parse_load(throttle=wrong)


def test_the_throttle_is_on_unless_it_is_turned_off() -> None:
    assert LoadControl().throttle_of(1) == Throttle(0.1, 1000)
    assert LoadControl().throttle_of(100) == Throttle(0.1, 20)
    assert UNLIMITED.throttle_of(1) is None
    assert parse_load(throttle="off").applied(LoadControl()).throttle is None
    assert parse_load(throttle="on").applied(UNLIMITED).throttle == 0.1
