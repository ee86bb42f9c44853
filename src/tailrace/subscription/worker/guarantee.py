"""What a worker promises about the messages that it handles."""

from __future__ import annotations

from enum import Enum

from tailrace.errors import InvalidValue


class Guarantee(Enum):
    """How often the effects of a message happen. Declared by a handler, checked when it starts."""

    AT_LEAST_ONCE = "at-least-once"
    """A message is acknowledged after its call. After a crash it is called again."""
    EXACTLY_ONCE = "exactly-once"
    """What the handler pushes by ``delivery.tx``, or writes to a database by
    ``delivery.connection``, is stored together with the acknowledgement."""
    AT_MOST_ONCE = "at-most-once"
    """A message is acknowledged before its call. It is never called twice."""

    @classmethod
    def parse(cls, text: object) -> Guarantee:
        """Return the guarantee of that name; `InvalidValue` if there is none."""
        for each in cls:
            if text in (each, each.value):
                return each
        raise InvalidValue("guarantee", text, ", ".join(each.value for each in cls))
