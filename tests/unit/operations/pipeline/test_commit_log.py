"""The records of a commit log, read for operators."""

from __future__ import annotations

from tailrace.operations.pipeline.commit_log import read_log, view_record
from tests.support.pipelines.lake import Lake


def test_the_log_is_read_from_one_offset_to_another_inclusive(lake: Lake) -> None:
    lake.namespaces = ("User", "Order")
    assert lake.run()

    def offsets(start: str, end: str, namespace: str | None = None) -> list[int]:
        found = read_log(lake.hub, "lake", start, end, namespace)
        return [message.offset for some in found for message in some]

    assert offsets("14", "15") == [14, 15]
    assert offsets("-3", "latest") == [13, 14, 15]
    assert offsets("10", "lake.commits/0.0@15", "User") == [10, 12, 14]
    assert offsets("10", "15", "/^Or/") == [11, 13, 15]
    ((first,),) = read_log(lake.hub, "lake", "3", "3", None)
    shown = view_record(first)
    assert (shown.position, shown.mode, shown.op) == ("lake.commits/0.0@3", "copy", "insert")
    assert bytes(shown.value) == b'{"n":3}'
