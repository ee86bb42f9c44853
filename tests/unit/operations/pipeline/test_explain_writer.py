"""The explanation of a writer: its state, the facts and the suggested commands."""

from __future__ import annotations

import pytest

from tailrace.errors import PipelineFailed
from tailrace.operations.explain import explain
from tailrace.operations.explanation import Explanation
from tailrace.operations.pipeline.describe import view_pipelines
from tailrace.operations.status import status
from tailrace.pipeline.catalog import hold_name
from tailrace.pipeline.last_run import LastRun, store_last_run
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterState
from tailrace.testing import ManualClock
from tests.support.pipelines.lake import Lake


def commands(explanation: Explanation) -> list[str]:
    return [remedy.command for remedy in explanation.remedies]


def test_a_failed_writer_is_explained_with_position_error_lag_and_remedies(lake: Lake) -> None:
    lake.fail_at_14()
    found = explain(lake.hub, "lake/crm")
    assert found.waits
    assert found.headline.startswith("FAILED since ")
    assert "at lake.commits/0.0@14 (on_error=stop)" in found.headline
    facts = {fact.name: fact.what for fact in found.facts}
    assert "refused because of 14" in facts["error"]
    assert facts["record"] == 'insert of A (copy): {"n":14}'
    assert facts["lag"].startswith("2 records")
    assert facts["compaction"].startswith("keeps 2 records")
    assert commands(found) == [
        "tailrace pipeline log lake --from 14 --to 14 -o json",
        "tailrace pipeline retry lake/crm --one-at-a-time",
        "tailrace pipeline ack lake/crm 14 --reason TEXT",
    ]
    assert found.remedies[-1].outcome == "then 1 record to deliver"


def test_a_sink_that_is_down_is_explained_without_a_record_to_blame(lake: Lake) -> None:
    lake.sink().mkdir()
    (lake.sink() / "down").touch()
    with pytest.raises(PipelineFailed, match=r"the sink is down · .* after 1 attempt"):
        lake.pipeline().run(lake.hub, once=True, wait="0s")
    found = explain(lake.hub, "lake/crm")
    assert commands(found) == ["tailrace pipeline retry lake/crm"]


def test_a_writer_that_waits_for_long_is_a_problem_and_before_that_a_note(lake: Lake) -> None:
    assert lake.run()
    clock = ManualClock()
    since_ms = clock.now_ms()
    waiting = WriterState(
        WriterStatus.WAITING, 16, 0, since_ms, "no route", tries=7, next_try_ms=since_ms + 70_000
    )
    ledger = lake.ledger()
    ledger.take_over()
    ledger.commit(plan=None, state=waiting)
    with lake.hub.backend.hold(hold_name("lake"), "process 7"):
        found = explain(lake.hub, "lake/crm")
        assert found.waits
        assert found.headline.endswith("for its sink, lag 0 (process 7)")
        assert [fact.what for fact in found.facts[:1]] == ["no route"]
        assert "after 7 attempts that failed" in found.facts[1].what
        assert "tailrace pipeline retry lake/crm" in commands(found)
        clock.advance(59)
        early = status(lake.hub, clock)
        assert (early.well, early.notes[0].subject) == (True, "writer lake/crm")
        clock.advance(2)
        late = status(lake.hub, clock)
        assert late.problems[0].what.startswith("WAITING since ")
        assert not late.well
    assert view_pipelines(lake.hub)[0].writers[0].state is WriterStatus.STOPPED


def test_a_writer_is_explained_by_the_state_of_its_pipeline(lake: Lake) -> None:
    assert lake.run()
    stopped = explain(lake.hub, "lake/crm")
    assert "does not run, lag 0" in stopped.headline
    assert not stopped.waits
    assert commands(stopped) == ["tailrace pipeline run FILE"]
    with lake.hub.backend.hold(hold_name("lake"), "process 7"):
        starting = explain(lake.hub, "lake/crm")
        assert starting.headline == "STARTING: pipeline lake starts, lag 0 (process 7)"
        assert commands(starting) == []
        store_last_run(lake.hub.backend, "lake", LastRun(0, follows=True))
        without = explain(lake.hub, "lake/crm")
        assert "runs without this writer (process 7)" in without.headline
        ledger = lake.ledger()
        ledger.take_over()
        ledger.commit(plan=None, state=ledger.state.__class__(WriterStatus.RUNNING, 16))
        assert "caught up (process 7)" in explain(lake.hub, "lake/crm").headline
        lake.hub.topic("lake.commits").push({"n": 16}, key="A")
        assert "lag 1 " in explain(lake.hub, "lake/crm").headline


def test_dead_letters_of_a_writer_are_part_of_its_explanation(lake: Lake) -> None:
    lake.options = {"on_error": "park"}
    lake.refuse(3)
    assert lake.run()
    found = explain(lake.hub, "lake/crm")
    assert "tailrace dlq lake/crm list --by error" in commands(found)
