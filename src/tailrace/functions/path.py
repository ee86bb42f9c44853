"""Fields of documents by dotted path: ``customer.address.city``.

A path leads through objects only, never into lists. It cannot name a field whose name has a dot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from tailrace.errors import InvalidValue
from tailrace.pipeline.transform.rows import Document

Tree: TypeAlias = "dict[str, Tree | None]"
"""Fields by name: below each, the selected fields in it, or None for the whole field."""

MISSING: Final = object()
"""The value at a path that a document does not have."""


def check_path(path: object) -> str:
    """Return the path; `InvalidValue` shows the form."""
    if not isinstance(path, str) or not all(path.split(".")):
        raise InvalidValue("field", path, "a field such as total or customer.address.city")
    return path


def tree_of(paths: Iterable[str]) -> Tree:
    """Return paths as a tree, so that each object is visited once."""
    tree: Tree = {}
    for path in paths:
        *above, name = path.split(".")
        node: Tree | None = tree
        for each in above:
            # A field that is selected whole stays whole if a field in it is selected too.
            node = None if node is None else node.setdefault(each, {})
        if node is not None:
            node[name] = None
    return tree


def value_at(document: Document, names: Sequence[str]) -> Any:
    """Return the value at a path, or `MISSING`."""
    value: Any = document
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def without(document: Document, tree: Tree) -> Document:
    """Return the document without the fields of a tree: the same object if it has none of them."""
    changed: Document | None = None
    for name, inner in tree.items():
        if name not in document:
            continue
        if inner is None:
            changed = document.copy() if changed is None else changed
            del changed[name]
        elif isinstance(value := document[name], dict):
            rest = without(value, inner)
            if rest is not value:
                changed = document.copy() if changed is None else changed
                changed[name] = rest
    return document if changed is None else changed


def only(document: Document, tree: Tree) -> Document:
    """Return the fields of a tree that the document has, in the tree's order."""
    kept: Document = {}
    for name, inner in tree.items():
        if name not in document:
            continue
        value = document[name]
        if inner is None:
            kept[name] = value
        elif isinstance(value, dict) and (part := only(value, inner)):
            kept[name] = part
    return kept
