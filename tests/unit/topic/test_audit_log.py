"""An audit entry is stored together with the change that it describes."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Fence, TableKey, Transaction, raise_fence
from tailrace.clock import utc_time
from tailrace.errors import Fenced
from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.operations.audit import read_audit
from tailrace.testing import MemoryBackend
from tailrace.topic.audit_log import AUDIT, AuditEntry, commit_audited

KEY = TableKey("t", b"k")
ENTRY = AuditEntry(utc_time(5), "ann@host", 7, "test", "orders", {}, {"done": "it"}, "because")


def change(hub: Hub) -> Transaction:
    record = Record(0, 5, Mode.SYNC, Op.INSERT, b"a", None, b"1")
    append = (Partition("orders", 0, 0), (record, record))
    return Transaction((append,), {KEY: b"1"}, raise_fence(hub.backend.store, "x"))


@pytest.fixture
def hub() -> Hub:
    hub = Hub.from_backend(MemoryBackend())
    hub.create_topic("orders", partitions=1)
    return hub


def test_the_audit_topic_is_created_and_only_the_ranges_of_the_change_are_returned(
    hub: Hub,
) -> None:
    (landed,) = commit_audited(hub.backend, change(hub), [ENTRY, ENTRY], 5)
    assert (landed.partition.topic, landed.count) == ("orders", 2)
    assert read_audit(hub, None, 10) == [ENTRY, ENTRY]
    assert hub.backend.table.get(*KEY) == b"1"


def test_a_change_that_is_refused_is_not_audited(hub: Hub) -> None:
    raise_fence(hub.backend.store, "x")
    stale = Transaction(table={KEY: b"1"}, fence=Fence("x", 0))
    with pytest.raises(Fenced):
        commit_audited(hub.backend, stale, [ENTRY], 5)
    assert read_audit(hub, None, 10) == []


def test_an_audit_topic_that_is_scaled_meanwhile_is_followed(hub: Hub) -> None:
    commit_audited(hub.backend, change(hub), [ENTRY], 5)
    hub.topic(AUDIT).scale(4)
    commit_audited(hub.backend, change(hub), [ENTRY], 5)
    assert len(read_audit(hub, "orders", 10)) == 2
