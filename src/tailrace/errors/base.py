"""The root of the tree of errors."""

from __future__ import annotations

from typing import Any, ClassVar


class Error(Exception):
    """The root of the tree: `except tailrace.Error` catches every error of Tailrace."""

    retryable: ClassVar[bool] = False

    def __init__(self, *sentences: str) -> None:
        super().__init__(" · ".join(sentence for sentence in sentences if sentence))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[Error], args: tuple[Any, ...], fields: dict[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error
