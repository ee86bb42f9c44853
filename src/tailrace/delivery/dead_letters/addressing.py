"""Records that only one consumer may process: redelivered dead letters.

Such a record has the header ``tailrace.for``, with the full name of its consumer: the writer
``lake/crm``, or the group ``billing``. Every other consumer skips it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.redelivered import addressees_of


def addressed_mask(headers: pa.Array[Any], consumer: str) -> npt.NDArray[np.bool_] | None:
    """Return, for each record, True if the consumer may process it; None if it may process all.

    `headers` is the column of the headers.
    """
    named = addressees_of(headers)
    if named is None:
        return None
    mine = pc.fill_null(pc.equal(named, pa.scalar(consumer.encode())), True)
    mask: npt.NDArray[np.bool_] = mine.to_numpy(zero_copy_only=False)
    return mask


def addressed_to(records: pa.RecordBatch, consumer: str) -> pa.RecordBatch:
    """Return the records that a consumer may process."""
    mask = addressed_mask(records["headers"], consumer)
    return records if mask is None else records.filter(pa.array(mask))
