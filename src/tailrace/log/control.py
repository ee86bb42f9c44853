"""Records that are not users' messages: control records, and records for one consumer alone.

A record is a *control record* if its mode is Complete, or its op Command or Noop: it describes a
source, such as the end of a copy. A record with the header `FOR` is a redelivered dead letter: only
the consumer that the header names may process it. Readers of messages leave both out unless they
are asked for.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.message import Mode, Op

FOR: Final = "tailrace.for"
"""On a record that only one consumer may process, such as a redelivered record: its full name."""

# Plain numbers: numpy compares them several times faster than members of an enum.
_COMPLETE: Final = int(Mode.COMPLETE)
_COMMAND: Final = int(Op.COMMAND)


def control_mask(records: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return, for each record, True if it is a control record."""
    modes, ops = records["mode"].to_numpy(), records["op"].to_numpy()
    mask: npt.NDArray[np.bool_] = (modes == _COMPLETE) | (ops >= _COMMAND)
    return mask


def without_control(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records that are not control records: the same batch if there are none."""
    mask = control_mask(records)
    return records.filter(pa.array(~mask)) if mask.any() else records


def messages_of(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records that are messages for every reader: the same batch if all are."""
    addressees = addressees_of(records["headers"])
    if addressees is not None:
        records = records.filter(pc.is_null(addressees))
    return without_control(records)


def addressees_of(headers: pa.Array[Any]) -> Any:
    """Return, for each record, the consumer that alone may process it, or null; None if no record
    names one.

    `headers` is the column of the headers.
    """
    if headers.null_count == len(headers):
        return None
    names: Any = headers
    if pc.index(names.keys, pa.scalar(FOR)).as_py() < 0:
        return None
    return pc.map_lookup(headers, query_key=pa.scalar(FOR), occurrence="first")
