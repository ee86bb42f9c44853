"""What a hub stores of a run that did not start."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.backend.contract import Store
from tailrace.pipeline.catalog import find, unregister
from tailrace.pipeline.last_run import RunRecorder
from tailrace.pipeline.writing.attempt import describe_error


def store_failed_start(
    store: Store,
    pipeline: str,
    recorder: RunRecorder,
    error: Exception,
    registered: Collection[str],
) -> None:
    """Store why a run did not start, for `status` and `explain`.

    If a later start may succeed, for example because a master of Spark cannot be reached, the
    pipeline stays in the catalog. Otherwise only the writers in `registered` stay, and a pipeline
    without any is removed, with its reason.
    """
    if not getattr(error, "retryable", False):
        unregister(store, pipeline, keeping=registered)
    if find(store, pipeline) is not None:
        recorder.fail_start(describe_error(error))
