"""Dividing a request by the shards of the next generation. Pure.

What is left of a request is divided by the shards that its targets have from now on, and the parts
that it has now are joined where they have one shard. All parts keep the id. The part with the
lowest shard also has the targets that have ended, so that its audit line names them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tailrace.subscription.shard.requests.request import LetterRequest, RequestTarget
from tailrace.subscription.shard.requests.state import FailedTarget, RequestState, TargetOutcome


class RequestPart(NamedTuple):
    """A request for one shard, and how far it is; None if it has not begun."""

    request: LetterRequest
    state: RequestState | None


class _DividedTarget(NamedTuple):
    """A target of a request, with its outcome, and the calls that failed."""

    target: RequestTarget
    outcome: str
    failed: FailedTarget | None


def divide_request(
    parts: Sequence[RequestPart], shard_of: Callable[[RequestTarget], int]
) -> list[RequestPart]:
    """Return the parts of a request for new shards, by shard. `parts` are all that it has now.

    A part that has ended is left out: its audit line is stored.
    """
    ended: list[_DividedTarget] = []
    divided: dict[int, list[_DividedTarget]] = {}
    letters = 0
    for request, state in parts:
        if state is not None and state.ended:
            continue
        letters += 0 if state is None else state.letters
        for each in _targets(request, state):
            if each.outcome == TargetOutcome.OPEN.value:
                divided.setdefault(shard_of(each.target), []).append(each)
            else:
                ended.append(each)
    found = []
    for shard, targets in sorted(divided.items()):
        found.append(_part(parts[0].request, shard, [*ended, *targets], letters))
        ended, letters = [], 0
    return found


def _targets(request: LetterRequest, state: RequestState | None) -> list[_DividedTarget]:
    outcomes = TargetOutcome.OPEN.value * len(request.targets) if state is None else state.outcomes
    failed = {} if state is None else {each.target: each for each in state.failed}
    return [
        _DividedTarget(target, outcome, failed.get(index))
        for index, (target, outcome) in enumerate(zip(request.targets, outcomes, strict=True))
    ]


def _part(
    request: LetterRequest, shard: int, targets: Sequence[_DividedTarget], letters: int
) -> RequestPart:
    part = replace(request, shard=shard, targets=tuple(each.target for each in targets))
    failed = tuple(
        each.failed._replace(target=index)
        for index, each in enumerate(targets)
        if each.failed is not None
    )
    state = RequestState("".join(each.outcome for each in targets), letters, failed)
    return RequestPart(part, state)
