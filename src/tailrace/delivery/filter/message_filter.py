"""A filter: which messages of a batch match an expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.filter.columns import mask_of
from tailrace.delivery.filter.expression import holds
from tailrace.delivery.filter.parser import parse_expression

_FEW: Final = 32
"""Below this number of messages it is faster to test one by one than in columns."""


class MessageFilter:
    """A filter over the key and the headers of messages. `text` is as it was written."""

    __slots__ = ("_expression", "text")

    def __init__(self, text: str) -> None:
        """Parse a filter. `InvalidValue` names the place of an error and what is valid there."""
        self._expression = parse_expression(text)
        self.text = text

    def __repr__(self) -> str:
        return f"<MessageFilter {self._expression}>"

    def matches(self, key: bytes | None, headers: Mapping[str, bytes]) -> bool:
        """Return True if a message matches."""
        return holds(self._expression, key, headers)

    def matching(self, batch: FetchedBatch) -> FetchedBatch:
        """Return the messages of a batch that match, the others left out as gaps; the same batch if
        all match."""
        if len(batch) < _FEW or batch.records is None:
            fields = enumerate(zip(batch.keys, batch.headers, strict=True))
            rows = [row for row, (key, headers) in fields if self.matches(key, headers)]
        else:
            rows = np.flatnonzero(mask_of(self._expression, batch.records)).tolist()
        return batch if len(rows) == len(batch) else batch.select(rows)
