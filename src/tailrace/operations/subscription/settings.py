"""The settings of a subscription as people read and write them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from tailrace.delivery.retry import Retry
from tailrace.duration import format_duration
from tailrace.errors import InvalidValue
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.store.definition import SubscriptionDefinition

WITHOUT_END: Final = "none"
"""The number of attempts of a retry policy that has no last one."""

_ATTEMPTS: Final = f"a whole number, 1 or more, or {WITHOUT_END} for no last attempt"
_OPTIONS: Final = {"attempts": "--attempts", "first": "--first-delay", "max": "--max-delay"}


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """The endpoint of a subscription. The `secret` is named, not shown."""

    endpoint: str
    timeout: str
    secret: str | None
    allow_private: bool
    retry_statuses: tuple[int, ...]

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointSettings:
        """Return the settings of an endpoint."""
        return cls(
            endpoint.url,
            format_duration(endpoint.timeout),
            endpoint.shown_secret,
            endpoint.allow_private,
            endpoint.retry_statuses,
        )


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """The settings of a subscription.

    `attempts` is None if there is no last attempt. `rq_partitions` and `dlq_partitions` are None if
    the queues have the partitions of the topic. `start` is where the subscription began. `endpoint`
    is None if workers call a handler. The parts of load control are as `--concurrency-total` and
    the others take them.
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
    endpoint: EndpointSettings | None
    concurrency_total: str
    breaker: str
    throttle: str

    @property
    def changeable(self) -> dict[str, object]:
        """The settings that can be changed, by name, as people and the audit see them."""
        found: dict[str, object] = {
            "attempts": self.attempts,
            "first_delay": self.first_delay,
            "max_delay": self.max_delay,
            "filter": self.filter,
            "concurrency_total": self.concurrency_total,
            "breaker": self.breaker,
            "throttle": self.throttle,
        }
        if self.endpoint is not None:
            found |= asdict(self.endpoint)
        return found

    @classmethod
    def of(cls, definition: SubscriptionDefinition) -> SubscriptionSettings:
        """Return the settings in a definition."""
        retry, endpoint = definition.retry, definition.endpoint
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
            endpoint=None if endpoint is None else EndpointSettings.of(endpoint),
            **definition.load.texts,
        )


def parse_statuses(text: str | None) -> tuple[int, ...] | None:
    """Return the HTTP statuses in a list such as ``404,409``; an empty one for ``none``."""
    if text is None or text == WITHOUT_END:
        return None if text is None else ()
    found = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() for each in found):
        valid = f"HTTP statuses such as 404,409, or {WITHOUT_END}"
        raise InvalidValue("--retry-statuses", text, valid)
    return tuple(map(int, found))


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


def _parse_attempts(text: str) -> int | None:
    if text == WITHOUT_END:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise InvalidValue("attempts", text, _ATTEMPTS)
    return int(text)
