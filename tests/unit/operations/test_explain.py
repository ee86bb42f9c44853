"""The subjects that can be explained."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidValue
from tailrace.operations.explain import explain
from tests.support.pipelines.lake import Lake


@pytest.mark.parametrize("subject", ["lake", "lake.commits/0.0@14", "c7", ""])
def test_only_topics_groups_partitions_pipelines_and_writers_can_be_explained(
    lake: Lake, subject: str
) -> None:
    with pytest.raises(InvalidValue, match="valid: a topic, group, partition, pipeline or writer"):
        explain(lake.hub, subject)
