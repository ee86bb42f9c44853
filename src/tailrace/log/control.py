"""Records that are not users' messages: control records, and records for one consumer alone.

A record is a *control record* if its mode is Complete, or its op Command or Noop: it describes a
source, such as the end of a copy. Readers of messages leave out control records and redelivered
records (`tailrace.log.redelivered`) unless they are asked for.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.redelivered import addressees_of
from tailrace.message import Mode, Op

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
