"""The state of a writer that a hub stores."""

from __future__ import annotations

from tailrace.backend.contract import Transaction
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterName, WriterState, stored_state
from tailrace.testing import MemoryBackend

CRM = WriterName("lake", "crm")


def test_a_state_that_was_stored_without_valid_rewinds_is_read() -> None:
    backend = MemoryBackend()
    stored = b'{"state":"failed","rows":7,"parked":1,"since_ms":5,"error":"no","position":null}'
    backend.commit(Transaction(table={CRM.key("state"): stored}))
    assert stored_state(backend, CRM) == WriterState(WriterStatus.FAILED, 7, 1, 5, "no")
    assert stored_state(backend, CRM).valid_rewinds == ()
