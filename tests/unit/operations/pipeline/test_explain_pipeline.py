"""The explanation of a pipeline: if it runs, why it did not start, and what its parts wait for."""

from __future__ import annotations

import pytest

from tailrace.errors import BackendUnavailable, ConfigError
from tailrace.operations.explain import explain
from tailrace.operations.explanation import Explanation
from tailrace.operations.pipeline.describe import view_pipelines
from tailrace.operations.status import status
from tailrace.pipeline.catalog import hold_name
from tailrace.pipeline.engine.driver import DriverOf
from tailrace.pipeline.last_run import LastRun, store_last_run
from tailrace.pipeline.reading.reader_failure import ReaderFailure, store_failure
from tailrace.pipeline.run import PipelineRun
from tailrace.source.reader import Until
from tests.support.pipelines.lake import Lake

UNREACHABLE = "cannot reach the Spark master spark://10.0.0.7:7077: it refuses the connection"
START = "start the master, or set another one with --master, master= or spark.master"


def refusing(error: Exception) -> DriverOf:
    """Return drivers that cannot be made, as if Spark did not start."""

    def driver_of(*_arguments: object) -> None:
        raise error

    return driver_of  # type: ignore[return-value]


def start(lake: Lake, error: Exception) -> None:
    """Run the pipeline on an engine that does not start."""
    definition = lake.pipeline().definition
    driver_of = refusing(error)
    run = PipelineRun(
        lake.hub, definition, until=Until.NOW, driver_of=driver_of, master="spark://10.0.0.7:7077"
    )
    with pytest.raises(type(error)):
        run.run()


def facts(found: Explanation) -> dict[str, str]:
    return {fact.name: fact.what for fact in found.facts}


def commands(found: Explanation) -> list[str]:
    return [remedy.command for remedy in found.remedies]


@pytest.fixture(params=["never", "before"])
def unstarted(lake: Lake, request: pytest.FixtureRequest) -> Lake:
    """A pipeline whose last run did not start, and which has run before or never."""
    if request.param == "before":
        assert lake.run()
    start(lake, BackendUnavailable(UNREACHABLE, START))
    return lake


def test_a_run_that_could_not_start_is_a_problem_at_once(unstarted: Lake) -> None:
    (problem,) = status(unstarted.hub).problems
    assert problem.subject == "pipeline lake"
    assert problem.what.startswith("DID NOT START ")
    assert problem.what.endswith(f": {UNREACHABLE}")
    assert problem.remedy == "tailrace explain lake"


def test_a_run_that_could_not_start_is_explained_by_its_reason(unstarted: Lake) -> None:
    found = explain(unstarted.hub, "lake")
    assert found.waits
    assert found.headline.startswith("FAILED: pipeline lake does not run since ")
    assert facts(found)["reason"] == f"the last run did not start: {UNREACHABLE} · {START}"
    assert commands(found)[0] == "tailrace pipeline run FILE --master spark://10.0.0.7:7077"
    writer = explain(unstarted.hub, "lake/crm")
    assert writer.waits
    assert facts(writer)["start"] == f"the last run did not start: {UNREACHABLE} · {START}"
    assert explain(unstarted.hub, "lake.commits").headline.startswith("FAILED for lake")


def test_the_reason_is_gone_once_a_run_starts(unstarted: Lake) -> None:
    assert unstarted.run()
    assert status(unstarted.hub).well
    found = explain(unstarted.hub, "lake")
    assert found.headline.startswith("STOPPED: pipeline lake does not run since ")
    assert (found.waits, "reason" in facts(found)) == (False, False)


def test_a_pipeline_that_never_ran_and_is_refused_is_not_listed(lake: Lake) -> None:
    start(lake, ConfigError("cannot import Spark"))
    assert view_pipelines(lake.hub) == []
    assert lake.run()
    start(lake, ConfigError("cannot import Spark"))
    assert facts(explain(lake.hub, "lake"))["reason"].endswith("ConfigError: cannot import Spark")


def test_a_pipeline_is_explained_with_its_reader_and_its_writers(lake: Lake) -> None:
    lake.writers = ("crm", "files")
    lake.fail_at_14()
    found = explain(lake.hub, "lake")
    assert found.waits
    assert facts(found)["reads"] == "CountingReader -> lake.commits"
    assert "lag 2 at lake.commits/0.0@14: " in facts(found)["lake/crm"]
    assert "lag 0" in facts(found)["lake/files"]
    assert commands(found) == ["tailrace pipeline run FILE", "tailrace explain lake/crm"]


def test_a_pipeline_whose_reader_failed_or_waits_is_explained_by_that(lake: Lake) -> None:
    assert lake.run()
    with lake.hub.backend.hold(hold_name("lake"), "process 7"):
        assert explain(lake.hub, "lake").headline == "STARTING: pipeline lake runs: process 7"
        store_last_run(lake.hub.backend, "lake", LastRun(0, follows=True))
        assert explain(lake.hub, "lake").headline == "RUNNING: pipeline lake runs: process 7"
        waits = LastRun(0, follows=True, waiting="no file matches")
        store_last_run(lake.hub.backend, "lake", waits)
        found = explain(lake.hub, "lake")
        assert found.headline.startswith("WAITING: ")
        assert facts(found)["reason"] == "its reader finds nothing to read: no file matches"
    store_failure(lake.hub.backend, "lake", ReaderFailure(1_000, "OSError: the cable is out"))
    failed = explain(lake.hub, "lake")
    assert failed.headline.startswith("FAILED: ")
    assert facts(failed)["reason"].endswith(
        "its reader failed at 1970-01-01 00:00:01Z: OSError: the cable is out"
    )


def test_a_topic_of_the_name_of_a_pipeline_is_explained_first(lake: Lake) -> None:
    assert lake.run()
    lake.hub.create_topic("lake", partitions=1)
    found = explain(lake.hub, "lake")
    assert found.headline.startswith("EMPTY")
    assert commands(found) == ["tailrace pipeline status lake"]
