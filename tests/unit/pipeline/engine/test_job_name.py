"""The names of a writer's jobs on the web page of Spark."""

from __future__ import annotations

import pytest

from tailrace.message import Partition
from tailrace.pipeline.engine.job_name import job_name
from tailrace.pipeline.writing.plan import PlanPart


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (1, "lake/crm: lake.commits/0.0@0 to 9"),
        (2, "lake/crm: lake.commits/0.0@0 to 9, lake.commits/0.1@0 to 9"),
        (
            5,
            "lake/crm: lake.commits/0.0@0 to 9, lake.commits/0.1@0 to 9,"
            " lake.commits/0.2@0 to 9 and 2 more",
        ),
    ],
)
def test_a_job_is_named_by_its_writer_and_the_first_of_its_parts(parts: int, named: str) -> None:
    given = [PlanPart(str(Partition("lake.commits", 0, number)), 0, 10) for number in range(parts)]
    assert job_name("lake/crm", given) == named
