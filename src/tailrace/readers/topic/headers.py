"""The headers of the messages that a source reads, without those that only Tailrace may write."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.schema import HEADERS
from tailrace.message import Partition
from tailrace.reserved_names import INTERNAL_PREFIX

SOURCE_KEY: Final = "source.key"
"""A header of a row: the key of the message that it was. Absent if the message had no key."""

SOURCE_POSITION: Final = "source.position"
"""A header of a row: the position of the message that it was, ``orders/1.7@42``."""


class _Pairs(NamedTuple):
    """Headers one by one: the row, the name and the value of each."""

    rows: npt.NDArray[np.int64]
    names: pa.Array[Any]
    values: pa.Array[Any]

    def without(self, mask: npt.NDArray[np.bool_]) -> _Pairs:
        """Return the pairs where the mask is False."""
        if not mask.any():
            return self
        kept = pa.array(~mask)
        return _Pairs(self.rows[~mask], self.names.filter(kept), self.values.filter(kept))


def user_headers(headers: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column of headers without the reserved ones: the same column if there are none."""
    if headers.null_count == len(headers):
        return headers
    pairs = _pairs_of(headers)
    mask = _reserved(pairs.names)
    return _column(pairs.without(mask), len(headers)) if mask.any() else headers


def source_headers(records: pa.RecordBatch, partition: Partition) -> pa.Array[Any]:
    """Return the headers of rows: those of the messages, without the reserved ones, with the key
    and the position of each message.

    Headers of these two names, as of a message that was read before, are replaced.
    """
    count = records.num_rows
    pairs = _pairs_of(records["headers"])
    names = pa.array([SOURCE_KEY, SOURCE_POSITION], pa.string())
    own: npt.NDArray[np.bool_] = pc.is_in(pairs.names, names).to_numpy(zero_copy_only=False)
    kept = pairs.without(own | _reserved(pairs.names))
    keys = records["key"]
    keyed = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
    rows = np.concatenate([kept.rows, keyed, np.arange(count)])
    all_names = [kept.names, pa.repeat(SOURCE_KEY, len(keyed)), pa.repeat(SOURCE_POSITION, count)]
    values = [kept.values, keys.drop_null(), _positions(records["offset"], partition)]
    return _column(_Pairs(rows, pa.concat_arrays(all_names), pa.concat_arrays(values)), count)


def _pairs_of(headers: pa.Array[Any]) -> _Pairs:
    if headers.null_count == len(headers):
        nothing = np.empty(0, np.int64)
        return _Pairs(nothing, pa.array([], HEADERS.key_type), pa.array([], HEADERS.item_type))
    column: Any = headers
    offsets = column.offsets.to_numpy()
    # `keys` and `items` may have pairs of rows outside a slice.
    places = np.arange(offsets[0], offsets[-1])
    rows = np.searchsorted(offsets, places, side="right") - 1
    pairs = _Pairs(rows, column.keys.take(places), column.items.take(places))
    null: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return pairs.without(null[rows])


def _reserved(names: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    found: Any = pc.starts_with(names, pattern=INTERNAL_PREFIX)
    mask: npt.NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return mask


def _positions(offsets: pa.Array[Any], partition: Partition) -> pa.Array[Any]:
    texts = [pa.scalar(f"{partition}@"), offsets.cast(pa.string()), pa.scalar("")]
    joined: Any = pc.call_function("binary_join_element_wise", texts)
    positions: pa.Array[Any] = joined.cast(pa.binary())
    return positions


def _column(pairs: _Pairs, count: int) -> pa.Array[Any]:
    """Return a column of headers. The pairs of each row are in their order; rows without pairs are
    null."""
    order = np.argsort(pairs.rows, kind="stable")
    counts = np.zeros(count + 1, np.int32)
    counts[1:] = np.bincount(pairs.rows, minlength=count)
    without = np.append(counts[1:] == 0, False)
    offsets = pa.array(counts.cumsum(dtype=np.int32), mask=without)
    column: Any = pa.MapArray.from_arrays(
        offsets, pairs.names.take(order), pairs.values.take(order)
    )
    found: pa.Array[Any] = column.cast(HEADERS)
    return found
