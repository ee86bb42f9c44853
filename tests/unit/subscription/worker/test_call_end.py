"""Either the effects of a call are committed, or the call is given up."""

from __future__ import annotations

from tailrace.subscription.worker.calls import CallEnd


def test_a_call_that_was_given_up_commits_nothing() -> None:
    end = CallEnd()
    assert end.give_up()
    assert not end.commit()


def test_a_commit_that_has_begun_is_awaited_once_and_then_given_up() -> None:
    end = CallEnd()
    assert end.commit()
    assert not end.give_up()
    assert end.give_up(), "a database that never answers does not keep the call for ever"
