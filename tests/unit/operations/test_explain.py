"""The subjects that can be explained."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidValue
from tailrace.operations.explain import explain
from tests.support.pipelines.lake import Lake


def test_a_record_of_a_commit_log_is_explained_for_each_writer(lake: Lake) -> None:
    lake.writers = ("crm", "files")
    lake.fail_at_14()
    found = explain(lake.hub, "lake.commits/0.0@14")
    assert found.headline == "FAILED for lake/crm, DELIVERED for lake/files"
    assert "refused because of 14" in {fact.name: fact.what for fact in found.facts}["lake/crm"]
    assert [each.command for each in found.remedies] == ["tailrace explain lake/crm"]
    assert explain(lake.hub, "lake.commits/0.0@15").headline.startswith("PENDING for lake/crm")


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
    with pytest.raises(InvalidValue, match="valid: a topic, group, partition, message, pipeline"):
        explain(lake.hub, subject)
