"""The endpoint of a subscription as it is stored, checked."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from tailrace.amount import is_whole
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue
from tailrace.subscription.endpoint.addresses import (
    is_local_name,
    is_name,
    is_private,
    literal_address,
)
from tailrace.subscription.endpoint.secret import check_secret, shown_secret

TIMEOUT: Final = "30s"
TIMEOUT_MAX: Final = timedelta(hours=1)
URL_CHARACTERS_MAX: Final = 2_000
SCHEMES: Final = ("https", "http")
STATUSES: Final = range(300, 500)
"""The statuses that can be retried although they are final by default."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_URL: Final = "https://HOST/PATH or http://HOST:PORT/PATH"
_ALLOW: Final = "to deliver to it: allow_private=True, or --allow-private"


class Endpoint(msgspec.Struct, frozen=True):
    """Where a subscription delivers over HTTP.

    A request that takes longer than `timeout_ms` has failed. `secret` signs deliveries, or names
    the file of one; `repr` does not show it. `retry_statuses` are answers that are retried although
    no attempt would follow by default.
    """

    url: str
    timeout_ms: int
    secret: str | None = None
    allow_private: bool = False
    retry_statuses: tuple[int, ...] = ()

    @property
    def timeout(self) -> timedelta:
        """The longest time of a request."""
        return self.timeout_ms * _MILLISECOND

    @property
    def shown_secret(self) -> str | None:
        """What people see of the secret."""
        return shown_secret(self.secret)

    def __repr__(self) -> str:
        return f"<Endpoint {self.url}>"


class EndpointChange(msgspec.Struct, frozen=True):
    """The given options of an endpoint, not checked yet; None for those that are not given."""

    url: str | None = None
    timeout: timedelta | str | None = None
    secret: str | None = None
    allow_private: bool | None = None
    retry_statuses: Collection[int] | None = None

    def followed_by(self, held: Endpoint | None, name: str) -> Endpoint | None:
        """Return the endpoint of a subscription after the change. `InvalidValue` if it has none,
        and one is given."""
        if self == SAME_ENDPOINT:
            return held
        if held is None:
            raise InvalidValue(
                "endpoint",
                "…",
                "",
                "create another subscription with an endpoint, and delete this one",
                problem=f"subscription {name} calls a handler, which stays so",
            )
        return self.applied(held)

    @property
    def given(self) -> list[str]:
        """The names of the options that are given, besides the URL."""
        options = ("timeout", "secret", "allow_private", "retry_statuses")
        return [name for name in options if getattr(self, name) not in (None, False, ())]

    def __repr__(self) -> str:
        return f"<EndpointChange {', '.join(self.given)}>"

    def made(self) -> Endpoint | None:
        """Return a new endpoint; None if there is to be none. `InvalidValue` if it is not valid."""
        if self.url is None:
            if self.given:
                option = self.given[0]
                raise InvalidValue(
                    option,
                    "…",
                    "",
                    "give endpoint= too, or --endpoint; a handler has options of its own",
                    problem=f"{option} is an option of an endpoint, and there is none",
                )
            return None
        return self.applied(Endpoint("", parse_timeout(TIMEOUT)))

    def applied(self, before: Endpoint) -> Endpoint:
        """Return an endpoint with the given options; an empty secret removes it."""
        changed: dict[str, Any] = {}
        if self.url is not None:
            changed["url"] = self.url
        if self.timeout is not None:
            changed["timeout_ms"] = parse_timeout(self.timeout)
        if self.secret is not None:
            changed["secret"] = check_secret(self.secret) if self.secret else None
        if self.allow_private is not None:
            changed["allow_private"] = self.allow_private
        if self.retry_statuses is not None:
            changed["retry_statuses"] = check_statuses(self.retry_statuses)
        after = msgspec.structs.replace(before, **changed)
        check_url(after.url, after.allow_private)
        return after


SAME_ENDPOINT: Final = EndpointChange()


def parse_timeout(value: timedelta | str) -> int:
    """Return the timeout of a request in milliseconds."""
    timeout = parse_duration(value, "timeout")
    if not _MILLISECOND <= timeout <= TIMEOUT_MAX:
        raise InvalidValue("timeout", value, "1ms to 1h")
    return round(timeout / _MILLISECOND)


def check_statuses(statuses: object) -> tuple[int, ...]:
    """Return statuses to retry, sorted."""
    valid = f"HTTP statuses from {STATUSES.start} to {STATUSES.stop - 1}"
    if not isinstance(statuses, Collection) or isinstance(statuses, str):
        raise InvalidValue("retry_statuses", statuses, f"a list of {valid}")
    found = list(statuses)
    for status in found:
        if not (is_whole(status) and status in STATUSES):
            raise InvalidValue("retry_statuses", status, valid)
    return tuple(sorted(set(found)))


def check_url(url: object, allow_private: bool) -> None:
    """Raise `InvalidValue` for a URL to which nothing can be delivered, or nothing may be."""
    parts = _split(url)
    if parts.scheme not in SCHEMES:
        raise _invalid_url(url, f"its scheme is {parts.scheme or 'missing'}")
    if "@" in parts.netloc:
        problem = "the endpoint has a user or a password in its URL, which commands would show"
        remedy = "remove it; the signature by a secret proves who sends a delivery"
        raise InvalidValue("endpoint", "…", _URL, remedy, problem=problem)
    if not parts.hostname:
        raise _invalid_url(url, "it has no host")
    try:
        address = literal_address(parts.hostname)
    except ValueError:
        raise _invalid_url(url, f"{parts.hostname} is no IP address") from None
    if address is None and not is_name(parts.hostname):
        raise _invalid_url(url, f"{parts.hostname} is no host name")
    if allow_private:
        return
    if is_local_name(parts.hostname) or (address is not None and is_private(address)):
        problem = f"the endpoint {url} has a private address, which is not allowed"
        raise InvalidValue("endpoint", url, "", _ALLOW, problem=problem)


def _split(url: object) -> SplitResult:
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise _invalid_url(url, "it is not a URL")
    if len(url) > URL_CHARACTERS_MAX:
        raise _invalid_url(url, f"it has more than {URL_CHARACTERS_MAX:,} characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _invalid_url(url, str(error)) from None
    if port == 0:
        raise _invalid_url(url, "its port is 0")
    return parts


def _invalid_url(url: object, reason: str) -> InvalidValue:
    shown = url if isinstance(url, str) and "@" not in url else "…"
    problem = f"the endpoint {shown!r} is not valid: {reason}" if shown != "…" else ""
    return InvalidValue("endpoint", shown, _URL, problem=problem)
