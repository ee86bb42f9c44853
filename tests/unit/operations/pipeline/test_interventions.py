"""Interventions of operators: effects, refusals and audit."""

from __future__ import annotations

import threading

import pytest

from tailrace.backend.contract import FENCES, raise_fence
from tailrace.errors import InvalidValue
from tailrace.operations.audit import read_audit
from tailrace.operations.pipeline.interventions import (
    Decision,
    Intervention,
    ack,
    retry,
    retry_one_at_a_time,
)
from tailrace.operations.pipeline.lookup import writer_names
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.plan import PlanKind
from tailrace.pipeline.writing.writer_ledger import WriterLedger
from tailrace.source.reader import Until
from tailrace.topic.audit_log import AUDIT
from tests.support.pipelines.lake import LOG, Lake
from tests.support.waiting import until

REASON = "a test order"


def everything(lake: Lake) -> tuple[object, ...]:
    """Return all state that an intervention could change."""
    ledger = lake.ledger()
    fence = lake.hub.backend.store.get(FENCES + "writer/lake/crm")
    return ledger.progress[LOG].mark, ledger.state, ledger.plan, fence, lake.hub.topics()


def test_an_acknowledged_record_is_never_delivered_and_the_writer_continues(lake: Lake) -> None:
    lake.fail_at_14()
    done = ack(lake.hub, "lake/crm", "14", REASON)
    assert (done.target, done.running) == ("lake/crm", None)
    assert lake.ledger().state.state is WriterStatus.STOPPED
    assert lake.run()
    assert lake.delivered() == [*range(14), 15]
    assert lake.mark() == 16


def test_an_ack_is_audited_with_user_time_reason_and_the_state_before_and_after(lake: Lake) -> None:
    lake.fail_at_14()
    ack(lake.hub, "lake/crm", "14-15", f"  {REASON} ")
    (entry,) = read_audit(lake.hub, "lake/crm", 20)
    assert (entry.command, entry.target, entry.reason) == ("pipeline ack", "lake/crm", REASON)
    assert "@" in entry.who
    assert entry.before["state"] == "failed"
    assert entry.before["marks"] == {"lake.commits/0.0": 14}
    assert entry.after["marks"] == {"lake.commits/0.0": 16}
    assert "lake.commits/0.0@14-15" in entry.after["done"]
    assert read_audit(lake.hub, "lake/files", 20) == []


def test_an_ack_of_another_record_leaves_the_failure_as_it_is(lake: Lake) -> None:
    lake.fail_at_14()
    ack(lake.hub, "lake/crm", "lake.commits/0.0@15", REASON)
    assert lake.ledger().state.state is WriterStatus.FAILED
    assert lake.ledger().state.position == "lake.commits/0.0@14"


@pytest.mark.parametrize(
    ("writer", "offset", "reason", "error"),
    [
        ("lake/crm", "16", REASON, "0 to 15"),
        ("lake/crm", "15-16", REASON, "0 to 15"),
        ("lake/crm", "13", REASON, "the first is lake.commits/0.0@14"),
        ("lake/crm", "14", " ", "reason"),
        ("lake/crm", "15-14", REASON, "the lower offset first"),
        ("lake/crm", "fourteen", REASON, "14-15"),
        ("lake/crm", "other/0.0@14", REASON, "lake.commits"),
        ("lake/crm", "lake.commits/0.1@14", REASON, "partition"),
        ("lake/crn", "14", REASON, "did you mean 'lake/crm'?"),
        ("crm", "14", REASON, "PIPELINE/WRITER"),
    ],
)
def test_an_invalid_ack_is_refused_and_changes_nothing(
    lake: Lake, writer: str, offset: str, reason: str, error: str
) -> None:
    lake.fail_at_14()
    before = everything(lake)
    with pytest.raises(InvalidValue, match=r"valid: ") as refused:
        ack(lake.hub, writer, offset, reason)
    assert error in str(refused.value)
    assert everything(lake) == before
    assert AUDIT not in lake.hub.topics()


def test_a_log_of_several_partitions_needs_positions(lake: Lake) -> None:
    lake.fail_at_14()
    lake.hub.topic("lake.commits").scale(4)
    with pytest.raises(InvalidValue, match="5 partitions"):
        ack(lake.hub, "lake/crm", "14", REASON)
    ack(lake.hub, "lake/crm", "lake.commits/0.0@14", REASON)
    assert lake.mark() == 15


def test_an_intervention_is_retried_when_a_driver_takes_the_writer_over(lake: Lake) -> None:
    lake.fail_at_14()
    taken_back = 0

    def decide(ledger: WriterLedger) -> Decision:
        nonlocal taken_back
        if ledger.fence.epoch and taken_back < 3:
            taken_back += 1
            raise_fence(lake.hub.backend.store, ledger.name.fence)
        return Decision("nothing", ledger.plan)

    Intervention.find(lake.hub, "lake/crm").apply("pipeline retry", decide)
    assert taken_back == 3
    assert len(read_audit(lake.hub, None, 20)) == 1


def test_a_driver_waits_while_an_operator_changes_the_ledger(lake: Lake) -> None:
    pipeline = lake.pipeline()
    run = pipeline.prepare(lake.hub, until=Until.STOPPED)
    lake.refuse(14)
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        until(lambda: "lake/crm" in writer_names(lake.hub))
        for _ in range(20):
            assert retry_one_at_a_time(lake.hub, "lake/crm").running is not None
        until(lambda: lake.ledger().state.state is WriterStatus.FAILED)
        ack(lake.hub, "lake/crm", "14", REASON)
        until(lambda: lake.mark() == 16)
    finally:
        run.stop()
        thread.join()
    assert len(read_audit(lake.hub, "lake/crm", 100)) == 21


def test_a_retried_writer_continues_where_it_failed(lake: Lake) -> None:
    lake.fail_at_14()
    lake.refuse()
    retry(lake.hub, "lake/crm")
    assert lake.ledger().state.state is WriterStatus.STOPPED
    assert lake.ledger().state.error is None
    assert lake.run()
    assert lake.delivered() == list(range(16))


def test_a_writer_that_has_not_failed_is_not_disturbed_by_a_retry(lake: Lake) -> None:
    assert lake.run()
    before = everything(lake)
    with pytest.raises(InvalidValue, match=r"^writer lake/crm has not failed · "):
        retry(lake.hub, "lake/crm")
    assert everything(lake) == before


def test_a_stop_that_comes_before_the_writers_begin_is_heeded(lake: Lake) -> None:
    assert lake.run()
    lake.hub.topic("lake.commits").push({"n": 16}, key="A")
    run = lake.pipeline().prepare(lake.hub, until=Until.STOPPED)
    run.stop()
    assert run.run() is RunOutcome.STOPPED
    assert lake.delivered() == list(range(16))


def test_a_retry_one_at_a_time_makes_the_open_plan_one_of_single_records(lake: Lake) -> None:
    lake.refuse(14)
    assert not lake.run()
    before = lake.ledger().plan
    retry_one_at_a_time(lake.hub, "lake/crm")
    after = lake.ledger().plan
    assert before is not None
    assert after is not None
    assert (after.kind, after.parts) == (PlanKind.SINGLE, before.parts)
    assert after.id != before.id
    lake.refuse()
    assert lake.run()
    assert lake.delivered() == list(range(16))


def test_a_retry_one_at_a_time_without_an_open_plan_applies_to_the_next_batch(lake: Lake) -> None:
    assert lake.run()
    lake.hub.topic("lake.commits").push_many([("A", {"n": 16}), ("A", {"n": 17})])
    done = retry_one_at_a_time(lake.hub, "lake/crm")
    assert "lake.commits/0.0@16-17 one at a time" in done.what
    assert lake.run()
    assert lake.delivered() == list(range(18))
    assert (lake.sink() / "deliveries").read_text().splitlines()[-2:] == ["[16]", "[17]"]


def test_a_retry_with_nothing_waiting_is_no_error(lake: Lake) -> None:
    assert lake.run()
    assert "no record waits" in retry_one_at_a_time(lake.hub, "lake/crm").what
    assert lake.ledger().plan is None
