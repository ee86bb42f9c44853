"""The subjects that can be explained."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidValue
from tailrace.operations.explain import explain
from tailrace.pipeline.catalog import hold_name
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterState
from tests.support.pipelines.lake import Lake


def test_a_record_of_a_commit_log_is_explained_for_each_writer(lake: Lake) -> None:
    lake.writers = ("crm", "files")
    lake.fail_at_14()
    found = explain(lake.hub, "lake.commits/0.0@14")
    assert found.headline == "FAILED for lake/crm, DELIVERED for lake/files"
    assert "refused because of 14" in {fact.name: fact.what for fact in found.facts}["lake/crm"]
    assert [each.command for each in found.remedies] == ["tailrace explain lake/crm"]
    assert explain(lake.hub, "lake.commits/0.0@15").headline.startswith("PENDING for lake/crm")


def test_a_record_waits_for_a_writer_that_runs_only_while_its_pipeline_does(lake: Lake) -> None:
    assert lake.run()
    ledger = lake.ledger()
    ledger.take_over()
    ledger.commit(plan=None, state=WriterState(WriterStatus.RUNNING, 16))
    lake.hub.topic("lake.commits").push({"n": 16}, key="A")
    pending = explain(lake.hub, "lake.commits/0.0@16")
    assert pending.facts[-1].what == "not written yet; the writer is stopped"
    with lake.hub.backend.hold(hold_name("lake"), "process 7"):
        pending = explain(lake.hub, "lake.commits/0.0@16")
    assert pending.facts[-1].what == "not written yet; the writer is running"


def test_a_parked_record_of_a_commit_log_is_skipped(lake: Lake) -> None:
    lake.options = {"on_error": "park"}
    lake.refuse(3)
    assert lake.run()
    found = explain(lake.hub, "lake.commits/0.0@3")
    assert (found.headline, found.waits) == ("SKIPPED for lake/crm", False)


@pytest.mark.parametrize("subject", ["lake", "c7", ""])
def test_a_name_of_something_else_is_refused_with_what_can_be_explained(
    lake: Lake, subject: str
) -> None:
    with pytest.raises(InvalidValue, match="valid: a topic, group, subscription, pipeline, writer"):
        explain(lake.hub, subject)
