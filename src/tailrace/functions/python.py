"""`python`: a user's function, called with each document."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

import msgspec
import pyarrow as pa

from tailrace.errors import ConfigError, InvalidValue
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Document, RowError, Rows

_FORMS: Final = 'a function, or its name such as "module:name"'
_RESULTS: Final = "valid: an object, a list of objects, or None to drop the document"

_encode = msgspec.json.Encoder().encode


class Python(Function, frozen=True):
    """Calls a function with each document and passes on its result; None drops the document.

    The function may change the document. Results are stored as JSON, as payloads are: times,
    decimals and UUIDs become text. A `function` given as text is searched in `directory` first,
    wherever the chain runs.
    """

    function: Callable[[Document], Any] | str
    directory: str = ""

    def apply(self, rows: Rows) -> Rows:
        """Return a row for each resulting document, with the offset of its input."""
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
        """The name of the function in errors."""
        if isinstance(self.function, str):
            return self.function
        return getattr(self.function, "__qualname__", repr(self.function))

    def resolved(self) -> Callable[[Document], Any]:
        """Return the function itself; `ConfigError` if there is none of that name."""
        if isinstance(self.function, str):
            return _imported(self.function, self.directory)
        return self.function


def _results(result: Any) -> list[Document]:
    if result is None:
        return []
    results = result if isinstance(result, list | tuple) else [result]
    for each in results:
        if not isinstance(each, dict):
            raise TypeError(f"the function returned {each!r:.80} · {_RESULTS}")
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
            f"put {module_name}.py in the directory of the pipeline's file, or install it",
        ) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(
            f"{text}: {module_name} has no function {name}", f"the module is {module.__file__}"
        )
    function: Callable[[Document], Any] = found
    return function


def python(
    function: Callable[[Document], Any] | str,
    *,
    directory: str = "",
    namespace: str | None = None,
) -> Python:
    """Return a function that calls `function` with each document.

    `function` returns a dict, a list of dicts, or None to drop the document. It is a callable or
    ``"module:name"``, where the module is in `directory` or installed.
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
