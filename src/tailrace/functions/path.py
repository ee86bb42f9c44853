"""Fields of documents by dotted path: ``customer.address.city``.

A path leads through objects only, never into lists. A name that itself has a dot cannot be reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from tailrace.errors import InvalidValue
from tailrace.pipeline.rows import Document

Tree: TypeAlias = "dict[str, Tree | None]"
"""Fields by name; below each the fields in it that are meant, or None for the whole of it."""

MISSING: Final = object()
"""What is found at a path that leads nowhere."""


def check_path(path: object) -> str:
    """The path, or an `InvalidValue` that shows the form."""
    if not isinstance(path, str) or not all(path.split(".")):
        raise InvalidValue("field", path, "a field such as total or customer.address.city")
    return path


def tree_of(paths: Iterable[str]) -> Tree:
    """Paths by their names, so that each object on the way is visited once."""
    tree: Tree = {}
    for path in paths:
        *above, name = path.split(".")
        node: Tree | None = tree
        for each in above:
            # What is meant whole is not narrowed by what lies in it.
            node = None if node is None else node.setdefault(each, {})
        if node is not None:
            node[name] = None
    return tree


def found(document: Document, names: Sequence[str]) -> Any:
    """The value at a path, or `MISSING`."""
    value: Any = document
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def without(document: Document, tree: Tree) -> Document:
    """The document less the fields of a tree: itself where it has none of them."""
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
    """The fields of a tree that the document has, in the tree's order."""
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
