"""The stored record of a pipeline's last run."""

from __future__ import annotations

from tailrace.clock import SystemClock
from tailrace.pipeline.last_run import RunRecorder, find_last_run
from tailrace.source.reader import Until
from tailrace.testing.memory import MemoryBackend


def test_a_reader_that_stops_after_the_end_of_its_run_does_not_remove_the_end() -> None:
    backend = MemoryBackend()
    recorder = RunRecorder(backend, "lake", Until.STOPPED, SystemClock())
    recorder.begin(None)
    recorder.end()
    recorder.stop_reading(caught_up=True)
    stored = find_last_run(backend, "lake")
    assert stored is not None
    assert stored.ended_ms is not None
    assert stored.caught_up
