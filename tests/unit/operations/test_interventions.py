"""Operators' interventions: what they change, what they refuse, and that each is audited."""

from __future__ import annotations

import threading

import pytest

from tailrace.backend.contract import FENCES, raise_fence
from tailrace.errors import InvalidValue
from tailrace.operations.audit import AUDIT, read_audit
from tailrace.operations.interventions import (
    Decision,
    Operated,
    ack,
    retry,
    retry_one_at_a_time,
)
from tailrace.operations.registered import writer_names
from tailrace.pipeline.books import Books, State
from tailrace.pipeline.plan import PlanKind
from tailrace.pipeline.run import Ending
from tailrace.source.reader import Until
from tests.unit.operations.desk import LOG, Desk
from tests.waiting import until

REASON = "a test order"


def everything(desk: Desk) -> tuple[object, ...]:
    """What an intervention could have changed."""
    books = desk.books()
    fence = desk.hub.backend.store.get(FENCES + "writer/lake/crm")
    return books.progress[LOG].mark, books.state, books.plan, fence, desk.hub.topics()


def test_an_acknowledged_record_is_never_sent_and_the_writer_goes_on(desk: Desk) -> None:
    desk.fail_at_14()
    done = ack(desk.hub, "lake/crm", "14", REASON)
    assert (done.target, done.running) == ("lake/crm", None)
    assert desk.books().state.state is State.STOPPED
    assert desk.run()
    assert desk.given() == [*range(14), 15]
    assert desk.mark() == 16


def test_an_ack_is_audited_with_who_when_why_and_what_was_before_and_after(desk: Desk) -> None:
    desk.fail_at_14()
    ack(desk.hub, "lake/crm", "14-15", f"  {REASON} ")
    (entry,) = read_audit(desk.hub, "lake/crm", 20)
    assert (entry.command, entry.target, entry.reason) == ("pipeline ack", "lake/crm", REASON)
    assert "@" in entry.who
    assert entry.before["state"] == "failed"
    assert entry.before["marks"] == {"lake.commits/0.0": 14}
    assert entry.after["marks"] == {"lake.commits/0.0": 16}
    assert "lake.commits/0.0@14-15" in entry.after["done"]
    assert read_audit(desk.hub, "lake/files", 20) == []


def test_an_ack_of_another_record_leaves_the_failure_as_it_is(desk: Desk) -> None:
    desk.fail_at_14()
    ack(desk.hub, "lake/crm", "lake.commits/0.0@15", REASON)
    assert desk.books().state.state is State.FAILED
    assert desk.books().state.position == "lake.commits/0.0@14"


@pytest.mark.parametrize(
    ("writer", "offset", "reason", "told"),
    [
        ("lake/crm", "16", REASON, "0 to 15"),
        ("lake/crm", "15-16", REASON, "0 to 15"),
        ("lake/crm", "13", REASON, "the first is lake.commits/0.0@14"),
        ("lake/crm", "14", " ", "reason"),
        ("lake/crm", "15-14", REASON, "the lower offset first"),
        ("lake/crm", "fourteen", REASON, "14-15"),
        ("lake/crm", "other/0.0@14", REASON, "lake.commits"),
        ("lake/crm", "lake.commits/0.1@14", REASON, "partition"),
        ("lake/crn", "14", REASON, "did you mean lake/crm?"),
        ("crm", "14", REASON, "PIPELINE/WRITER"),
    ],
)
def test_an_ack_that_cannot_be_meant_is_refused_and_changes_nothing(
    desk: Desk, writer: str, offset: str, reason: str, told: str
) -> None:
    desk.fail_at_14()
    before = everything(desk)
    with pytest.raises(InvalidValue, match=r"valid: ") as refused:
        ack(desk.hub, writer, offset, reason)
    assert told in str(refused.value)
    assert everything(desk) == before
    assert AUDIT not in desk.hub.topics()


def test_a_log_of_several_partitions_needs_positions(desk: Desk) -> None:
    desk.fail_at_14()
    desk.hub.topic("lake.commits").scale(4)
    with pytest.raises(InvalidValue, match="5 partitions"):
        ack(desk.hub, "lake/crm", "14", REASON)
    ack(desk.hub, "lake/crm", "lake.commits/0.0@14", REASON)
    assert desk.mark() == 15


def test_a_driver_that_takes_the_writer_back_between_is_overtaken_again(desk: Desk) -> None:
    desk.fail_at_14()
    taken_back = 0

    def decide(books: Books) -> Decision:
        nonlocal taken_back
        if books.fence.epoch and taken_back < 3:
            taken_back += 1
            raise_fence(desk.hub.backend.store, books.name.fence)
        return Decision("nothing", books.plan)

    Operated.find(desk.hub, "lake/crm").intervene("pipeline retry", decide)
    assert taken_back == 3
    assert len(read_audit(desk.hub, None, 20)) == 1


def test_a_driver_keeps_back_while_an_operator_is_at_the_books(desk: Desk) -> None:
    pipeline = desk.pipeline()
    run = pipeline.prepare(desk.hub, until=Until.STOPPED)
    desk.refuse(14)
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        until(lambda: "lake/crm" in writer_names(desk.hub))
        for _ in range(20):
            assert retry_one_at_a_time(desk.hub, "lake/crm").running is not None
        until(lambda: desk.books().state.state is State.FAILED)
        ack(desk.hub, "lake/crm", "14", REASON)
        until(lambda: desk.mark() == 16)
    finally:
        run.stop()
        thread.join()
    assert len(read_audit(desk.hub, "lake/crm", 100)) == 21


def test_a_retried_writer_goes_on_where_it_failed(desk: Desk) -> None:
    desk.fail_at_14()
    desk.refuse()
    retry(desk.hub, "lake/crm")
    assert desk.books().state.state is State.STOPPED
    assert desk.books().state.error is None
    assert desk.run()
    assert desk.given() == list(range(16))


def test_a_writer_that_has_not_failed_is_not_disturbed_by_a_retry(desk: Desk) -> None:
    assert desk.run()
    before = everything(desk)
    with pytest.raises(InvalidValue, match="one that has failed"):
        retry(desk.hub, "lake/crm")
    assert everything(desk) == before


def test_a_stop_that_comes_before_the_writers_begin_is_heeded(desk: Desk) -> None:
    assert desk.run()
    desk.hub.topic("lake.commits").push({"n": 16}, key="A")
    run = desk.pipeline().prepare(desk.hub, until=Until.STOPPED)
    run.stop()
    assert run.run() is Ending.STOPPED
    assert desk.given() == list(range(16))


def test_a_retry_one_at_a_time_makes_the_open_plan_one_of_single_records(desk: Desk) -> None:
    desk.refuse(14)
    assert not desk.run()
    before = desk.books().plan
    retry_one_at_a_time(desk.hub, "lake/crm")
    after = desk.books().plan
    assert before is not None
    assert after is not None
    assert (after.kind, after.parts) == (PlanKind.SINGLE, before.parts)
    assert after.id != before.id
    desk.refuse()
    assert desk.run()
    assert desk.given() == list(range(16))


def test_a_retry_one_at_a_time_without_an_open_plan_takes_the_next_batch_so(desk: Desk) -> None:
    assert desk.run()
    desk.hub.topic("lake.commits").push_many([("A", {"n": 16}), ("A", {"n": 17})])
    done = retry_one_at_a_time(desk.hub, "lake/crm")
    assert "lake.commits/0.0@16-17 one at a time" in done.what
    assert desk.run()
    assert desk.given() == list(range(18))
    assert (desk.sink() / "deliveries").read_text().splitlines()[-2:] == ["[16]", "[17]"]


def test_a_retry_with_nothing_waiting_is_no_error(desk: Desk) -> None:
    assert desk.run()
    assert "nothing waits" in retry_one_at_a_time(desk.hub, "lake/crm").what
    assert desk.books().plan is None
