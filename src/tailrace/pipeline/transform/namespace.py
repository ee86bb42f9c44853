"""Namespace filters: a name, a regular expression, or all."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import InvalidValue
from tailrace.regular_expression import check_expression, search

FORMS: Final = "a name such as public.orders, or a regular expression such as /^public[.]/"


class NamespaceFilter(msgspec.Struct, frozen=True):
    """Matches namespaces.

    A plain name matches only itself. ``/…/`` is an RE2 regular expression that is searched, so
    ``/User/`` also matches FooUser and UserFoo. Without either, the filter matches all.
    """

    name: str | None = None
    expression: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> NamespaceFilter:
        """Parse a filter; None matches all. `InvalidValue` if RE2 refuses the expression."""
        if text is None:
            return ALL
        expression = expression_in(text, "namespace")
        return cls(name=text) if expression is None else cls(expression=expression)

    def __str__(self) -> str:
        return (self.name or "all") if self.expression is None else f"/{self.expression}/"

    def matches(self, namespace: str) -> bool:
        """True if the filter matches a namespace."""
        if self.expression is not None:
            return search(self.expression, (namespace,))[0]
        return self.name is None or namespace == self.name

    def mask(self, keys: pa.Array[Any]) -> npt.NDArray[np.bool_] | None:
        """Return, for each key, True if its namespace matches; None if all do.

        Each distinct namespace is matched once.
        """
        if self == ALL or not len(keys):
            return None
        indices, namespaces = distinct(keys)
        if self.expression is not None:
            matching = search(self.expression, namespaces)
        else:
            matching = [namespace == self.name for namespace in namespaces]
        return None if all(matching) else np.array(matching)[indices]


ALL: Final = NamespaceFilter()
"""The filter that matches every namespace."""


def expression_in(text: object, what: str) -> str | None:
    """Return the expression of a text of the form ``/…/``; None if the text is a plain name."""
    if not isinstance(text, str) or not text:
        raise InvalidValue(what, text, FORMS)
    if not text.startswith("/"):
        return None
    if len(text) < 2 or not text.endswith("/"):
        raise InvalidValue(what, text, FORMS, "an expression must end with /")
    return check_expression(what, text[1:-1])


def distinct(keys: pa.Array[Any]) -> tuple[npt.NDArray[np.integer[Any]], list[str]]:
    """Return the index of each key's namespace, and the distinct namespaces."""
    encoded: Any = keys.dictionary_encode("encode")
    namespaces = [
        (key or b"").decode("utf-8", "backslashreplace") for key in encoded.dictionary.to_pylist()
    ]
    return encoded.indices.to_numpy(), namespaces
