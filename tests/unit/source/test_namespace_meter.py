"""How far the namespaces of a source are, and how fast they are read."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.backend.contract import Transaction
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.source.namespace_meter import WINDOW_S, NamespaceMeter
from tailrace.source.reader import Batch, Split
from tailrace.source.report import NamespaceState
from tailrace.source.split_state import SplitState, report_entry, state_entry
from tailrace.testing import ManualClock
from tests.unit.source.scripted_reader import Begin, ScriptedReading, finish, rows

COPY = Split("copy", namespace="ns", rows_expected=10, kept=True)
FOLLOW = Split("follow", namespace="ns", follows=("copy",))


def store(hub: Hub, *states: SplitState) -> None:
    for state in states:
        table = dict([state_entry("s", state), report_entry("s", state.split)])
        hub.backend.commit(Transaction(table=table))


def meter(hub: Hub, clock: ManualClock) -> NamespaceMeter:
    return NamespaceMeter(hub.backend, "s", clock.monotonic)


def test_a_namespace_is_copied_until_its_copy_is_finished(hub: Hub) -> None:
    store(hub, SplitState(COPY, rows=4), SplitState(FOLLOW))
    found = meter(hub, ManualClock())
    (copying,) = found.look()
    assert (copying.state, copying.rows, copying.rows_expected) == (NamespaceState.COPYING, 4, 10)
    assert copying.rows_per_second is None
    store(hub, SplitState(COPY, rows=11, finished=True), SplitState(FOLLOW, rows=3, lag=7))
    (followed,) = found.look()
    assert (followed.state, followed.rows, followed.rows_expected) == (
        NamespaceState.FOLLOWING,
        11,
        11,
    )
    assert followed.lag == 7


def test_the_splits_of_a_namespace_are_added_up_also_those_that_have_not_begun(hub: Hub) -> None:
    splits = [Split(name, namespace="ns", rows_expected=100) for name in "abc"]
    a, b, c = splits
    store(hub, SplitState(a, rows=40), SplitState(b, rows=7), SplitState(Split("no namespace")))
    hub.backend.commit(Transaction(table=dict([report_entry("s", c, "a")])))
    (copying,) = meter(hub, ManualClock()).look()
    assert (copying.rows, copying.rows_expected) == (47, 300)


def test_a_namespace_whose_rows_nobody_expects_is_followed(hub: Hub) -> None:
    split = Split("z", namespace="z")
    store(hub, SplitState(split, rows=5), SplitState(Split("a", namespace="a"), rows=1))
    first, last = meter(hub, ManualClock()).look()
    assert (first.namespace, last.namespace) == ("a", "z")
    assert (last.state, last.rows, last.rows_expected) == (NamespaceState.FOLLOWING, 5, None)


def test_a_source_without_namespaces_has_no_progress(hub: Hub) -> None:
    assert meter(hub, ManualClock()).look() == ()


def test_what_is_left_of_a_namespace_may_wait_and_be_finished(hub: Hub) -> None:
    later = Split("later", namespace="later", follows=("copy",))
    store(hub, SplitState(COPY), SplitState(later))
    found = meter(hub, ManualClock())
    assert [each.state for each in found.look()] == [NamespaceState.WAITING, NamespaceState.COPYING]
    store(hub, SplitState(COPY, finished=True), SplitState(later, finished=True))
    assert {each.state for each in found.look()} == {NamespaceState.FINISHED}


def test_a_rate_is_that_of_the_last_seconds_over_all_splits(hub: Hub) -> None:
    clock = ManualClock()
    found = meter(hub, clock)
    store(hub, SplitState(COPY, rows=100))
    found.look()
    for number in range(1, 4):
        clock.advance(WINDOW_S)
        store(hub, SplitState(COPY, rows=100 + 50 * number), SplitState(FOLLOW, rows=10 * number))
        (measured,) = found.look()
        assert measured.rows_per_second == 60 / WINDOW_S
    clock.advance(2 * WINDOW_S)
    (idle,) = found.look()
    assert idle.rows_per_second == 0


def test_a_split_that_was_removed_does_not_make_a_rate_negative(hub: Hub) -> None:
    clock = ManualClock()
    found = meter(hub, clock)
    store(hub, SplitState(COPY, rows=9), SplitState(FOLLOW, rows=500))
    found.look()
    hub.backend.commit(Transaction(table={state_entry("s", SplitState(FOLLOW))[0]: None}))
    clock.advance(1)
    (measured,) = found.look()
    assert measured.rows_per_second == 0


def test_the_rows_of_a_copy_are_those_that_its_complete_record_counts(
    hub: Hub, begin: Begin
) -> None:
    done = Record(0, 0, Mode.COMPLETE, Op.NOOP, b"ns", None, msgspec.json.encode({"rows": 80_000}))
    complete = Batch(from_records([done]), 1, finished=True)
    finish(begin(ScriptedReading({"copy": [complete]}, (COPY,))))
    (copied,) = meter(hub, ManualClock()).look()
    assert (copied.rows, copied.state) == (80_000, NamespaceState.FINISHED)


def test_the_lag_of_the_last_batch_is_stored_with_it(
    hub: Hub, begin: Begin, log: Topic[Any]
) -> None:
    split = Split("follow", namespace="ns")
    first, last = Batch(rows("a"), 1, lag=5), Batch(rows("b"), 2, lag=0)
    finish(begin(ScriptedReading({"follow": [first]}, (split,))))
    assert [each.lag for each in meter(hub, ManualClock()).look()] == [5]
    finish(begin(ScriptedReading({"follow": [first, last]}, (split,))))
    assert [each.lag for each in meter(hub, ManualClock()).look()] == [0]
