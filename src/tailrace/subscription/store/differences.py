"""The differences between a subscription and a requested one, in words."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.delivery.retry import Retry
from tailrace.duration import format_duration
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.store.definition import (
    NewSubscription,
    SubscriptionDefinition,
    retry_ms,
)
from tailrace.topic.view import StoredDefinition


def differences(
    held: SubscriptionDefinition, new: NewSubscription, main: StoredDefinition | None
) -> list[str]:
    """List how a subscription differs from a requested one; `main` is the requested topic.

    Options that were not given are not compared, and neither is `start`: it is where the
    subscription began. A number of shards that was changed since is not either.
    """
    return list(_differences(held, new, main))


def describe_retry(retry: Retry) -> str:
    """Return a retry policy as text: ``attempts 8, first 1s, max 10m``."""
    count = "no last attempt" if retry.attempts is None else f"attempts {retry.attempts}"
    return f"{count}, first {format_duration(retry.first)}, max {format_duration(retry.max)}"


def _differences(
    held: SubscriptionDefinition, new: NewSubscription, main: StoredDefinition | None
) -> Iterator[str]:
    if new.topic != held.topic:
        yield f"its topic is {held.topic!r}, not {new.topic!r}"
    elif main is None:
        yield f"its topic {held.topic!r} was deleted"
    elif main.definition.identity != held.topic_identity:
        yield f"its topic {held.topic!r} was deleted, and created again since"
    if not held.generation and new.shards not in (None, held.shards):
        yield f"its number of shards is {held.shards}, not {new.shards}"
    if (new.retry.attempts, *retry_ms(new.retry)) != (held.attempts, held.first_ms, held.max_ms):
        yield f"its retry policy is {describe_retry(held.retry)}, not {describe_retry(new.retry)}"
    if new.policy is not held.policy:
        yield f"its on_dead_letter is {held.on_dead_letter}, not {new.policy.value}"
    if new.filter != held.filter:
        yield f"its filter is {_shown(held.filter)}, not {_shown(new.filter)}"
    yield from _endpoint_differences(held.endpoint, new.endpoint)
    wanted = new.load.texts
    for option, text in held.load.texts.items():
        if text != wanted[option]:
            yield f"its {option} is {text}, not {wanted[option]}"
    if new.assignment != held.assignment:
        yield f"its assignment is {held.assignment}, not {new.assignment}"
    for option in ("rq_partitions", "dlq_partitions"):
        asked, given = getattr(new, option), getattr(held, option)
        if asked not in (None, given):
            yield f"its {option} is {'that of the topic' if given is None else given}, not {asked}"


def _endpoint_differences(held: Endpoint | None, new: Endpoint | None) -> Iterator[str]:
    if held is None or new is None:
        if held != new:
            yield f"its endpoint is {_url(held)}, not {_url(new)}"
        return
    if new.url != held.url:
        yield f"its endpoint is {held.url}, not {new.url}"
    if new.timeout != held.timeout:
        was, now = format_duration(held.timeout), format_duration(new.timeout)
        yield f"the timeout of its endpoint is {was}, not {now}"
    if new.secret != held.secret:
        was, now = (each.shown_secret or "none" for each in (held, new))
        yield f"its secret is {was}, not {now}"
    if new.allow_private != held.allow_private:
        yield f"its allow_private is {held.allow_private}, not {new.allow_private}"
    if new.retry_statuses != held.retry_statuses:
        yield f"its retry_statuses are {held.retry_statuses}, not {new.retry_statuses}"


def _url(endpoint: Endpoint | None) -> str:
    return "none" if endpoint is None else endpoint.url


def _shown(filter: str | None) -> str:
    return "none" if filter is None else repr(filter)
