"""Load control as people give it to commands: as text."""

from __future__ import annotations

from typing import Any, TypedDict

from tailrace.delivery.load_control import LoadOptions, parse_load
from tailrace.errors import InvalidValue


class LoadTexts(TypedDict, total=False):
    """The options of load control; None for those that are not given."""

    concurrency_total: str | None
    breaker: str | None
    throttle: str | None


def parse_load_texts(texts: LoadTexts) -> LoadOptions:
    """Return load control. Raise `InvalidValue`, which names the option of the command."""
    options: Any = dict(texts)
    total = texts.get("concurrency_total")
    if total is not None and total.isascii() and total.isdecimal():
        options["concurrency_total"] = int(total)
    given: LoadOptions = options
    try:
        parse_load(**given)
    except InvalidValue as error:
        option = "--" + error.what.replace("_", "-")
        raise InvalidValue(option, error.value, error.valid) from None
    return given
