"""`remap`: rows under other namespaces."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.errors import InvalidValue
from tailrace.pipeline.expression import check_replacement, replace
from tailrace.pipeline.function import Function
from tailrace.pipeline.namespace import NamespaceFilter, distinct
from tailrace.pipeline.rows import Rows


class Remap(Function, frozen=True):
    r"""Gives rows other namespaces: by the first of `rules` that matches theirs, if one does.

    A rule is a filter and what comes instead. With a plain name that is a name; with an expression
    every match in the namespace is replaced, ``\1`` standing for the first group.
    """

    rules: tuple[tuple[NamespaceFilter, str], ...]

    def apply(self, rows: Rows) -> Rows:
        """Every row, under the namespace that it has now."""
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
    r"""Give rows other namespaces::

    fn.remap({"public.orders": "orders", r"/^public[.](.*)$/": r"other.\1"})
    """
    if not isinstance(namespaces, Mapping) or not namespaces:
        raise InvalidValue("namespaces", namespaces, 'old and new ones, such as {"a": "b"}')
    rules = tuple((NamespaceFilter.parse(old), new) for old, new in namespaces.items())
    for rule, new in rules:
        if not isinstance(new, str) or not new:
            raise InvalidValue(f"what becomes of {rule}", new, "a namespace")
        if rule.expression is not None:
            check_replacement(f"what becomes of {rule}", rule.expression, new)
    return Remap(rules, namespace=NamespaceFilter.parse(namespace))
