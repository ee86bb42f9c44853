"""A commit log of which the oldest storage topic was deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import InvalidValue, StorageDeleted
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations import explain, status
from tailrace.operations.dead_letters import listing
from tailrace.operations.pipeline import describe, interventions, namespaces, rewind
from tailrace.operations.pipeline.lookup import find_pipeline
from tailrace.testing import MemoryBackend
from tests.support.pipelines.lake import Lake

NEXT = "lake.commits/1.0"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A pipeline that has written 16 rows before its commit log was scaled, and 16 since."""
    lake = Lake(Hub.from_backend(MemoryBackend()), tmp_path, options={"on_error": "park"})
    lake.refuse(3)
    assert lake.run()
    lake.hub.topic("lake.commits").add_storage_topic(1)
    lake.hub.topic("lake.commits").switch_produce()
    lake.rows = 32
    lake.refuse()
    assert lake.run()
    return lake


def test_the_writers_continue(lake: Lake) -> None:
    lake.hub.topic("lake.commits").trim(1)
    lake.rows = 48
    assert lake.run()
    assert len(lake.delivered()) == 47
    assert {str(where) for where in lake.ledger().progress} == {NEXT}


def test_what_a_writer_has_not_delivered_is_not_deleted(lake: Lake) -> None:
    log = lake.hub.topic("lake.commits")
    log.add_storage_topic(1)
    log.switch_produce()
    lake.options = {}
    lake.rows = 48
    lake.refuse(*range(100))
    assert not lake.run()
    log.add_storage_topic(1)
    log.switch_produce()
    assert log.trim(2).storages == (0, 1)
    with pytest.raises(InvalidValue, match="lake/crm has 16 messages unread"):
        log.trim(3)


def test_operators_see_what_is_left(lake: Lake) -> None:
    lake.hub.topic("lake.commits").trim(1)
    view = describe.view_pipeline(lake.hub, find_pipeline(lake.hub, "lake"))
    assert view is not None
    assert {row.partition for row in namespaces.namespace_offsets(lake.hub, "lake")} == {NEXT}
    assert explain.explain(lake.hub, "lake/crm").headline
    assert status.status(lake.hub)
    with pytest.raises(StorageDeleted):
        rewind.plan_rewind(lake.hub, "lake/crm", "lake.commits/0.0@3")
    assert rewind.plan_rewind(lake.hub, "lake/crm", "3").changes
    with pytest.raises(InvalidValue):
        interventions.ack(lake.hub, "lake/crm", "3", "a test")
    [letter] = listing.list_letters(lake.hub, "lake/crm", 10)
    assert letter.position
    assert Partition.parse(NEXT).storage == 1


def test_the_dead_letters_that_are_left_are_listed(lake: Lake) -> None:
    topic = lake.hub.topic("lake.dead-letters")
    topic.add_storage_topic(1)
    topic.switch_produce()
    with pytest.raises(InvalidValue):
        topic.trim(1)
    topic.trim(1, force=True)
    assert listing.list_letters(lake.hub, "lake/crm", 10) == []
