"""What a reader reports, checked before anything of it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec
import pyarrow as pa

from tailrace.errors import InvalidValue
from tailrace.source.reader import Batch, Split
from tailrace.source.split_state import check_split

_JSON: Final = "JSON types: objects, arrays, text, numbers, true, false and null"

_encode = msgspec.json.Encoder().encode
_decode_split = msgspec.json.Decoder(Split).decode


def checked_batch(split: Split, batch: object) -> Batch:
    """Return a batch of a split, with position and children as the next owner will get them.

    `InvalidValue` if a reader may not yield it.
    """
    what = f"of a batch of split {split.id!r}"
    if not isinstance(batch, Batch):
        raise _wrong(f"what read yields for split {split.id!r}", batch, "a Batch or None")
    records = batch.records
    if records is not None:
        if not isinstance(records, pa.RecordBatch):
            raise _wrong(f"records {what}", records, "what from_records returns, or None")
        if batch.identities is not None and len(batch.identities) != records.num_rows:
            valid = f"{records.num_rows}, one for each record"
            raise InvalidValue(f"the number of identities {what}", len(batch.identities), valid)
    try:
        position = msgspec.json.decode(_encode(batch.position))
    except TypeError as error:
        raise InvalidValue(f"position {what}", batch.position, _JSON) from error
    return replace(batch, position=position, children=_children(split, batch.children))


def checked_first_splits(splits: Iterable[Any]) -> tuple[Split, ...]:
    """Return the first splits of a source; `InvalidValue` if they cannot be."""
    found: dict[str, Split] = {}
    for split in splits:
        checked = _checked_split(split)
        if checked.id in found:
            raise InvalidValue("id of a split", checked.id, "an id that no other first split has")
        found[checked.id] = checked
    return tuple(found.values())


def _children(split: Split, children: Iterable[Any]) -> tuple[Split, ...]:
    found = tuple(map(_checked_split, children))
    for child in found:
        if child.bound not in (None, split.bound):
            raise InvalidValue(
                f"bound of split {child.id!r}",
                child.bound,
                "that of the split that reports it, or None",
            )
    return found


def _checked_split(split: object) -> Split:
    """Return a split as it will be read back from the table."""
    if not isinstance(split, Split):
        raise _wrong("a split", split, "a Split")
    try:
        return check_split(_decode_split(_encode(split)))
    except (TypeError, msgspec.ValidationError) as error:
        problem = f"split {split.id!r} cannot be stored: {error}"
        raise InvalidValue("split", split, _JSON, problem=problem) from error


def _wrong(what: str, value: object, valid: str) -> InvalidValue:
    """Return the error for a value of another type."""
    problem = f"{what} is of type {type(value).__name__}"
    return InvalidValue(what, value, valid, problem=problem)
