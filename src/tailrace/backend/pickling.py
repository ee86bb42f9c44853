"""Objects that have a hub open cannot leave their process."""

from __future__ import annotations

from typing import NoReturn

from tailrace.errors import Error


class Unpicklable:
    """An object that can be neither pickled nor copied, with an error that says what to do.

    Without it, `pickle` would fail at a file or a lock somewhere inside the object.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise Error(
            f"{type(self).__name__} objects cannot be pickled or copied: they have a hub open in"
            " this process",
            "open the hub in the other process with tailrace.open()",
            "names, receipts, messages and deliveries can be pickled",
        )
