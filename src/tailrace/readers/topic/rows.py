"""The records of a partition as a source stores them: as rows of a commit log, or as messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.column_codec import row_lengths
from tailrace.log.control import control_mask
from tailrace.log.redelivered import addressees_of
from tailrace.log.schema import SCHEMA
from tailrace.message import Partition
from tailrace.payload.json_lines import join_objects
from tailrace.readers.topic.headers import source_headers, user_headers
from tailrace.source.reader import BadRecord

_INVALID: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decoder = msgspec.json.Decoder(dict[str, Any])


class PartitionRows(NamedTuple):
    """Rows for the commit log with their identities, and the messages that are no rows."""

    records: pa.RecordBatch
    identities: pa.Array[Any]
    bad: list[BadRecord]


def messages_for_all(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records without those that one consumer alone may process, which are copies."""
    addressees = addressees_of(records["headers"])
    return records if addressees is None else records.filter(pc.is_null(addressees))


def pushed_messages(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records as they are pushed to another topic: without the reserved headers."""
    return _with(records, headers=user_headers(records["headers"]))


def partition_rows(records: pa.RecordBatch, partition: Partition, namespace: str) -> PartitionRows:
    """Return the records of a partition as rows of a namespace. Their keys are the identities.

    A message whose value is not a JSON object becomes a bad record. Control records may have any
    value, and so may a message with an empty one, such as a deletion.
    """
    errors = dict(_errors(records))
    bad = [
        BadRecord(
            namespace,
            f"{partition}@{records['offset'][index].as_py()}",
            error,
            records["value"][index].as_py(),
        )
        for index, error in errors.items()
    ]
    if errors:
        mask = np.ones(records.num_rows, np.bool_)
        mask[list(errors)] = False
        records = records.filter(pa.array(mask))
    keys = pa.repeat(pa.scalar(namespace.encode(), pa.binary()), records.num_rows)
    rows = _with(records, key=keys, headers=source_headers(records, partition))
    return PartitionRows(rows, records["key"].fill_null(b""), bad)


def _with(records: pa.RecordBatch, **columns: pa.Array[Any]) -> pa.RecordBatch:
    """Return the records with some columns replaced."""
    found = dict(zip(SCHEMA.names, records.columns, strict=True)) | columns
    return pa.RecordBatch.from_arrays(list(found.values()), schema=SCHEMA)


def _errors(records: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Yield the index and the error of each row whose value is not a JSON object."""
    rows = np.flatnonzero(~control_mask(records) & (row_lengths(records["value"]) > 0))
    values = records["value"].take(rows)
    if not len(rows) or _are_objects(values):
        return
    each: list[Any] = values.to_pylist()
    for row, value in zip(rows.tolist(), each, strict=True):
        try:
            _decoder.decode(value)
        except _INVALID as error:
            yield row, f"it is not a JSON object: {error}"


def _are_objects(values: pa.Array[Any]) -> bool:
    """True if each value is a JSON object. All are decoded at once, several times faster."""
    joined = join_objects(values)
    if joined is None:
        return False
    try:
        return len(_decoder.decode_lines(memoryview(joined))) == len(values)
    except _INVALID:
        return False
