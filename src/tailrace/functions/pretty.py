"""`pretty`: log documents, for debugging."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tailrace.errors import InvalidValue
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Rows

INDENT_MAX: Final = 8

_LOGGER: Final = logging.getLogger(__name__)


class Pretty(Function, frozen=True):
    """Logs each document, at level INFO of the logger ``tailrace.functions.pretty``.

    With an `indent` of 0, a document is one line.
    """

    indent: int = 2

    def apply(self, rows: Rows) -> Rows:
        """Log every row and return all rows unchanged."""
        if _LOGGER.isEnabledFor(logging.INFO):
            shown = zip(rows.namespaces, rows.offsets, rows.ops, rows.documents, strict=True)
            for namespace, offset, op, document in shown:
                text = msgspec.json.format(msgspec.json.encode(document), indent=self.indent)
                _LOGGER.info("%s@%d %s %s", namespace, offset, op.name.lower(), text.decode())
        return rows


def pretty(*, indent: int = 2, namespace: str | None = None) -> Pretty:
    """Return a function that logs each document. With an indent of 0, a document is one line."""
    if not isinstance(indent, int) or isinstance(indent, bool) or not 0 <= indent <= INDENT_MAX:
        raise InvalidValue("indent", indent, f"0 to {INDENT_MAX}")
    return Pretty(indent, namespace=NamespaceFilter.parse(namespace))
