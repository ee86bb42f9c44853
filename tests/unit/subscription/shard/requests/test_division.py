"""What is left of a request is divided by the shards of the next generation."""

from __future__ import annotations

from tailrace.subscription.shard.requests.division import RequestPart, divide_request
from tailrace.subscription.shard.requests.request import (
    LetterRequest,
    RequestAction,
    RequestTarget,
)
from tailrace.subscription.shard.requests.state import FailedTarget, RequestState

NEXT = {b"a": 0, b"b": 0, b"c": 4, b"d": 2}


def request(shard: int, *keys: bytes) -> LetterRequest:
    targets = tuple(map(RequestTarget, keys))
    return LetterRequest("r", shard, RequestAction.REDELIVER, targets, 1, "ann@host", 7, "dlq")


def shard_of(target: RequestTarget) -> int:
    assert target.key is not None
    return NEXT[target.key]


def keys(part: RequestPart) -> list[bytes | None]:
    return [each.key for each in part.request.targets]


def test_each_target_goes_to_its_next_shard() -> None:
    found = divide_request([RequestPart(request(0, b"a", b"c", b"b"), None)], shard_of)
    assert [(each.request.id, each.request.shard, keys(each)) for each in found] == [
        ("r", 0, [b"a", b"b"]),
        ("r", 4, [b"c"]),
    ]
    assert [each.state for each in found] == [RequestState(".."), RequestState(".")]


def test_parts_of_one_shard_are_joined_again() -> None:
    parts = [RequestPart(request(0, b"a"), None), RequestPart(request(1, b"b"), None)]
    (part,) = divide_request(parts, shard_of)
    assert keys(part) == [b"a", b"b"]


def test_what_has_ended_stays_with_the_lowest_shard_and_is_counted_once() -> None:
    state = RequestState("d.f.", 5, (FailedTarget(3, 2, 99, 7),))
    found = divide_request([RequestPart(request(3, b"a", b"c", b"b", b"d"), state)], shard_of)
    low, high = found
    assert (low.request.shard, keys(low)) == (2, [b"a", b"b", b"d"])
    assert low.state == RequestState("df.", 5, (FailedTarget(2, 2, 99, 7),))
    assert (keys(high), high.state) == ([b"c"], RequestState("."))


def test_a_part_that_has_ended_is_left_out() -> None:
    ended = RequestPart(request(0, b"a"), RequestState("d", 1))
    assert divide_request([ended], shard_of) == []
    assert len(divide_request([ended, RequestPart(request(1, b"c"), None)], shard_of)) == 1
