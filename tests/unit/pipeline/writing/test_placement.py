"""Where the work of a writer is done, by the answers of the executors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.pipeline.writer import LocalSink
from tailrace.pipeline.writing.placement import ExecutorAnswer, Place, place

GOOD = ExecutorAnswer("a", 1, None, None)
ALSO_GOOD = ExecutorAnswer("b", 2, None, None)
BLIND = ExecutorAnswer("b", 2, "it has no such directory", None)
APART = ExecutorAnswer("b", 2, None, "it has another directory of this name")
SINK = LocalSink("/sink")
STRANGER = ExecutorAnswer("b", 2, "it has no such directory", "it has no such directory")


@pytest.mark.parametrize(
    ("answers", "executors", "sink", "reading", "writing"),
    [
        ([GOOD, ALSO_GOOD], 2, SINK, Place.EXECUTORS, Place.EXECUTORS),
        ([GOOD, BLIND], 2, SINK, Place.DRIVER, Place.EXECUTORS),
        ([GOOD, APART], 2, SINK, Place.EXECUTORS, Place.DRIVER),
        ([GOOD, STRANGER], 2, SINK, Place.DRIVER, Place.DRIVER),
        ([GOOD, STRANGER], 2, None, Place.DRIVER, Place.EXECUTORS),
        ([GOOD], 2, SINK, Place.DRIVER, Place.DRIVER),
        ([GOOD], 2, None, Place.DRIVER, Place.EXECUTORS),
        ([], 0, SINK, Place.DRIVER, Place.DRIVER),
        ([GOOD, ALSO_GOOD], 1, SINK, Place.EXECUTORS, Place.EXECUTORS),
    ],
)
def test_executors_do_what_all_of_them_can(
    answers: Sequence[ExecutorAnswer],
    executors: int,
    sink: LocalSink | None,
    reading: Place,
    writing: Place,
) -> None:
    found = place(answers, executors, "/hub", sink)
    assert (found.reading, found.writing) == (reading, writing)


def test_no_note_is_made_if_every_executor_shares_everything() -> None:
    assert place([GOOD, ALSO_GOOD], 2, "/hub", SINK).notes == ()


def test_a_note_names_the_host_the_path_and_what_helps() -> None:
    hub, sink = place([GOOD, STRANGER], 2, "/hub", SINK).notes
    assert "b cannot read the hub /hub: it has no such directory" in hub
    assert "mount /hub there under the same path" in hub
    assert "b does not share /sink: it has no such directory" in sink
    assert "the driver writes" in sink
    assert "mount /sink there" in sink


def test_a_sink_of_one_host_is_not_to_be_mounted_on_others() -> None:
    (note,) = place([APART], 1, "/hub", LocalSink("/sink", one_host=True)).notes
    assert "mount" not in note


def test_a_sink_that_spark_writes_is_to_be_where_all_hosts_share_it() -> None:
    (note,) = place([APART], 1, "/hub", LocalSink("/sink", executors_only=True)).notes
    assert note.endswith("choose a path that all hosts share")


def test_executors_of_one_host_with_one_reason_get_one_note() -> None:
    again = BLIND._replace(process=3)
    assert len(place([BLIND, again], 2, "/hub", None).notes) == 1


def test_executors_that_did_not_answer_are_counted() -> None:
    (note,) = place([GOOD], 3, "/hub", None).notes
    assert note.startswith("2 executors of 3 did not answer in time")
