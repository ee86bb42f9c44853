"""A pause takes back what was prepared, and nothing of it is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.subscription.shard.options import Acking
from tests.support.shards import Owner, Shop


def owner_of_a_suspect() -> Owner:
    """Return an owner that has begun to prepare the call of a suspect."""
    shop = Shop()
    shop.push("a", 1)
    shop.owner().start_calls()  # its worker ends
    owner = shop.owner()
    owner.advance()
    owner.machine.begin_alone()
    return owner


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
def test_a_suspect_that_was_about_to_be_called_is_called_after_the_pause(marked: bool) -> None:
    owner = owner_of_a_suspect()
    if marked:
        owner.commit()
    owner.machine.paused = 7
    owner.advance()
    assert owner.machine.alone is None
    assert not owner.machine.wants_alone
    assert not owner.machine.unsaved
    owner.machine.paused = 0
    assert owner.start_calls() == [1]
    assert owner.in_flight[1].alone


def test_a_suspect_has_its_process_until_the_commit_of_the_pause_is_stored() -> None:
    owner = owner_of_a_suspect()
    owner.commit()
    owner.machine.paused = 7
    commit = owner.machine.start_commit()
    assert commit is not None
    assert owner.machine.alone is not None
    owner.machine.committed(commit, [])
    assert owner.machine.alone is None


def test_a_suspect_that_is_acknowledged_before_its_call_leaves_its_process_to_others() -> None:
    owner = owner_of_a_suspect()
    owner.machine.follow(replace(owner.machine.options, acking=Acking.BEFORE_CALL))
    owner.shop.push("b", 2)
    owner.advance()
    turn = owner.machine.take()
    assert turn is not None
    assert turn.early
    owner.in_flight[1] = turn
    owner.finish(1)
    owner.run()
    assert owner.calls == [(2, 1)]
