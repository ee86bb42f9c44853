"""The lag of a streaming query, from what Spark reports of it."""

from __future__ import annotations

import json
from typing import Any

import tailrace.spark


def source(end: Any, latest: Any) -> dict[str, Any]:
    """A source as the progress of a query has it."""
    return {"endOffset": end, "latestOffset": latest}


def test_the_lag_is_what_was_stored_and_not_read() -> None:
    read = json.dumps({"orders": {"identity": "a", "0.0": 10}})
    stored = json.dumps({"orders": {"identity": "a", "0.0": 15, "0.1": 7}})
    assert tailrace.spark.lag({"sources": [source(read, stored)]}) == {"orders": 12}


def test_a_topic_that_was_created_again_is_read_from_its_start() -> None:
    read = json.dumps({"orders": {"identity": "a", "0.0": 10}})
    stored = json.dumps({"orders": {"identity": "b", "0.0": 15}})
    assert tailrace.spark.lag({"sources": [source(read, stored)]}) == {"orders": 15}


def test_without_progress_or_with_other_sources_there_is_no_lag() -> None:
    assert tailrace.spark.lag(None) == {}
    others = [source(None, None), source("7", "9"), source('{"t": {"0": 1}}', '{"t": {"0": 2}}')]
    assert tailrace.spark.lag({"sources": others}) == {}
