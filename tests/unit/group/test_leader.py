"""A leader, told what it may be told: what it answers, and what it has the store do."""

from __future__ import annotations

import pytest

from tailrace.group.actions import Send
from tailrace.group.events import Tick
from tailrace.group.leader import Leader
from tailrace.group.leader_events import Heard
from tailrace.group.messages import (
    Disconnect,
    Held,
    Invalidate,
    LeaderWanted,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from tailrace.group.times import Times
from tailrace.group.unit import StoredGrant

GROUP, TERM, UNIT = "billing", 7, "orders/0.0"


def a_leader(*grants: StoredGrant) -> Leader:
    """A leader that was elected just now, and found these grants."""
    return Leader(GROUP, TERM, Times(), grants, adopt_until=10.0, now=0.0)


@pytest.mark.parametrize(
    "message",
    [
        UpdateProgress(GROUP, "stranger", UNIT, epoch=5, mark=60),
        RevokeFinished(GROUP, "stranger", UNIT, epoch=5),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_borrower_that_it_does_not_know_is_told_so_by_the_answer_to_whatever_it_says(
    message: UpdateProgress | RevokeFinished,
) -> None:
    answer = Send("elsewhere", Invalidate(GROUP, "stranger", TERM))
    assert a_leader().handle(Heard("elsewhere", message), 1.0) == [answer]


def test_a_borrower_that_it_does_not_know_and_that_leaves_is_told_nothing() -> None:
    assert a_leader().handle(Heard("elsewhere", Disconnect(GROUP, "stranger")), 1.0) == []


@pytest.mark.parametrize("fenced", [True, False])
def test_a_new_leader_takes_away_what_a_seek_has_fenced_and_nothing_else(fenced: bool) -> None:
    leader = a_leader(StoredGrant(UNIT, "b.1", "b", epoch=5, fenced=fenced))
    wanted = LeaderWanted(GROUP, "b.1", (Held(UNIT, 5),), revoke_timeout_s=35.0, roster_version=1)
    said = leader.handle(Heard("b", wanted), 1.0) + leader.handle(Tick(), 1.0)
    assert (Send("b", Revoked(GROUP, "b.1", TERM, UNIT, 5)) in said) == fenced
