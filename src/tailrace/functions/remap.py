"""`remap`: change namespaces."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.errors import InvalidValue
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter, distinct
from tailrace.pipeline.transform.rows import Rows
from tailrace.regular_expression import check_replacement, replace


class Remap(Function, frozen=True):
    r"""Changes the namespace of rows by the first of `rules` that matches it, if any.

    A rule is a filter and a replacement. For a plain name the replacement is a name; for an
    expression every match in the namespace is replaced, and ``\1`` is the first group.
    """

    rules: tuple[tuple[NamespaceFilter, str], ...]

    def apply(self, rows: Rows) -> Rows:
        """Return every row, under its new namespace."""
        indices, namespaces = distinct(rows.records["key"])
        remapped = [self._remapped(namespace) for namespace in namespaces]
        if remapped == namespaces:
            return rows
        return rows.with_namespaces([remapped[index] for index in indices.tolist()])

    def _remapped(self, namespace: str) -> str:
        for rule, target in self.rules:
            if rule.matches(namespace):
                if rule.expression is None:
                    return target
                return replace(rule.expression, target, (namespace,))[0]
        return namespace


def remap(namespaces: Mapping[str, str], *, namespace: str | None = None) -> Remap:
    r"""Return a function that changes the namespaces of rows::

    fn.remap({"public.orders": "orders", r"/^public[.](.*)$/": r"other.\1"})
    """
    if not isinstance(namespaces, Mapping) or not namespaces:
        raise InvalidValue("namespaces", namespaces, 'old and new namespaces, such as {"a": "b"}')
    rules = tuple((NamespaceFilter.parse(old), new) for old, new in namespaces.items())
    for rule, new in rules:
        if not isinstance(new, str) or not new:
            raise InvalidValue(f"the replacement of {rule}", new, "a namespace")
        if rule.expression is not None:
            check_replacement(f"the replacement of {rule}", rule.expression, new)
    return Remap(rules, namespace=NamespaceFilter.parse(namespace))
