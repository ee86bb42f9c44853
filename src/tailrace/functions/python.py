"""`python`: a function of the user's own, document by document."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

import msgspec
import pyarrow as pa

from tailrace.errors import ConfigError, InvalidValue
from tailrace.pipeline.function import Function
from tailrace.pipeline.namespace import NamespaceFilter
from tailrace.pipeline.rows import Document, RowError, Rows

_FORMS: Final = 'a function, or where to find one, such as "module:name"'
_RESULTS: Final = "valid: an object, a list of objects, or None to drop the document"

_encode = msgspec.json.Encoder().encode


class Python(Function, frozen=True):
    """Calls a function with each document: what it returns goes on, or nothing for None.

    The document is the function's own and may be changed. Results are stored as JSON, as a payload
    is: times, decimals and UUIDs become text. A `function` in writing is looked for in `directory`
    first, wherever the chain runs.
    """

    function: Callable[[Document], Any] | str
    directory: str = ""

    def apply(self, rows: Rows) -> Rows:
        """A row for each document that comes out, with the offset of the one that went in."""
        function = self.resolved()
        indices: list[int] = []
        values: list[bytes] = []
        for index, document in enumerate(rows.documents):
            try:
                for result in _results(function(document)):
                    values.append(_encode(result))
                    indices.append(index)
            except Exception as error:
                reason = f"{self.label}: {type(error).__name__}: {error}"
                raise RowError(rows.offsets[index], reason) from error
        records = rows.take(indices).records
        column = records.schema.get_field_index("value")
        return Rows(
            records.set_column(column, records.field(column), pa.array(values, pa.binary()))
        )

    @property
    def label(self) -> str:
        """What to call the function when it fails."""
        if isinstance(self.function, str):
            return self.function
        return getattr(self.function, "__qualname__", repr(self.function))

    def resolved(self) -> Callable[[Document], Any]:
        """The function itself; `ConfigError` where there is none of that name."""
        if isinstance(self.function, str):
            return _imported(self.function, self.directory)
        return self.function


def _results(result: Any) -> list[Document]:
    if result is None:
        return []
    results = result if isinstance(result, list | tuple) else [result]
    for each in results:
        if not isinstance(each, dict):
            raise TypeError(f"it returned {each!r:.80} · {_RESULTS}")
    return list(results)


@cache
def _imported(text: str, directory: str) -> Callable[[Document], Any]:
    module_name, _, name = text.partition(":")
    if directory and directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"{text}: {module_name} cannot be imported: {type(error).__name__}: {error}",
            f"put {module_name}.py beside the pipeline's file, or install it",
        ) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(
            f"{text}: {module_name} has no function {name}", f"it is {module.__file__}"
        )
    function: Callable[[Document], Any] = found
    return function


def python(
    function: Callable[[Document], Any] | str,
    *,
    directory: str = "",
    namespace: str | None = None,
) -> Python:
    """Call a function with each document: it returns a dict, a list of dicts, or None to drop it.

    It is given as it is or as ``"module:name"``, a module of `directory` or an installed one.
    """
    if isinstance(function, str):
        module, colon, name = function.partition(":")
        if not (module and colon and name):
            raise InvalidValue("function", function, _FORMS)
    elif not callable(function):
        raise InvalidValue("function", function, _FORMS)
    made = Python(function, directory, namespace=NamespaceFilter.parse(namespace))
    made.resolved()
    return made
