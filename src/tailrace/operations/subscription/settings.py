"""The settings of a subscription as people read and write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tailrace.delivery.load_control import LoadOptions, parse_load
from tailrace.delivery.retry import Retry
from tailrace.duration import format_duration
from tailrace.errors import InvalidValue
from tailrace.subscription.store.definition import SubscriptionDefinition

WITHOUT_END: Final = "none"
"""The number of attempts of a retry policy that has no last one."""

_ATTEMPTS: Final = f"a whole number, 1 or more, or {WITHOUT_END} for no last attempt"
_OPTIONS: Final = {"attempts": "--attempts", "first": "--first-delay", "max": "--max-delay"}


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """The settings of a subscription.

    `attempts` is None if there is no last attempt. `rq_partitions` and `dlq_partitions` are None if
    the queues have the partitions of the topic. `start` is where the subscription began. The parts
    of load control are as `--concurrency-total` and the others take them.
    """

    topic: str
    shards: int
    attempts: int | None
    first_delay: str
    max_delay: str
    on_dead_letter: str
    filter: str | None
    rq_partitions: int | None
    dlq_partitions: int | None
    start: str
    concurrency_total: str

    @classmethod
    def of(cls, definition: SubscriptionDefinition) -> SubscriptionSettings:
        """Return the settings in a definition."""
        retry = definition.retry
        return cls(
            topic=definition.topic,
            shards=definition.shards,
            attempts=retry.attempts,
            first_delay=format_duration(retry.first),
            max_delay=format_duration(retry.max),
            on_dead_letter=definition.on_dead_letter,
            filter=definition.filter,
            rq_partitions=definition.rq_partitions,
            dlq_partitions=definition.dlq_partitions,
            start=definition.start,
            **definition.load.texts,
        )


def parse_retry(
    base: Retry, attempts: str | None, first_delay: str | None, max_delay: str | None
) -> Retry:
    """Return a retry policy with the values that are given; the others are those of `base`.

    Raise `InvalidValue`, which names the option.
    """
    try:
        return Retry(
            base.attempts if attempts is None else _parse_attempts(attempts),
            first=format_duration(base.first) if first_delay is None else first_delay,
            max=format_duration(base.max) if max_delay is None else max_delay,
        )
    except InvalidValue as error:
        valid = _ATTEMPTS if error.what == "attempts" else error.valid
        raise InvalidValue(_OPTIONS[error.what], error.value, valid) from None


def parse_load_options(concurrency_total: str | None) -> LoadOptions:
    """Return load control from the options of a command. Raise `InvalidValue`, which names the
    option."""
    options = LoadOptions()
    if concurrency_total is not None:
        options["concurrency_total"] = _parse_total(concurrency_total)
    try:
        parse_load(**options)
    except InvalidValue as error:
        option = "--" + error.what.replace("_", "-")
        raise InvalidValue(option, error.value, error.valid) from None
    return options


def _parse_total(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() else text


def _parse_attempts(text: str) -> int | None:
    if text == WITHOUT_END:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise InvalidValue("attempts", text, _ATTEMPTS)
    return int(text)
