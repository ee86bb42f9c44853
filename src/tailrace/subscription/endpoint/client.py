"""Requests to an endpoint, by aiohttp. Only workers load this module: aiohttp is an extra."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

import aiohttp
from yarl import URL

from tailrace.subscription.endpoint.addresses import is_private
from tailrace.subscription.endpoint.answer import Answer, printable

CONNECT_TIMEOUT_S: Final = 10.0
"""The longest time to connect, within that of the request."""

KEEP_ALIVE_S: Final = 4.0
"""How long an idle connection is kept: shorter than common servers do, so that it is not closed
just when it is used."""

RESOLVE_AGAIN_S: Final = 10
"""How long the addresses of a host are used for new connections."""

BODY_BYTES_MAX: Final = 64 << 10
"""The part of an answer's body that is read. The rest is not awaited."""


class NoAnswer(Exception):
    """There was no answer, or none to its end. The text is for people."""


class PrivateAddress(OSError):
    """The host has a private address, and that is not allowed."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"{address} is a private address, which is not allowed")


class EndpointClient:
    """Posts to endpoints. One event loop uses it.

    Addresses are checked when a connection is made, after its host was resolved, so a name that is
    resolved anew is checked anew. `refuses` says which addresses are private. A host is resolved
    again for a connection that is made `resolve_again_s` later.
    """

    def __init__(
        self,
        connections: int,
        *,
        refuses: Callable[[str], bool] = is_private,
        resolve_again_s: int = RESOLVE_AGAIN_S,
    ) -> None:
        self._refuses = refuses
        self.allow_private = False
        """True if connections to private addresses are made too. Open ones are not closed."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections,
                keepalive_timeout=KEEP_ALIVE_S,
                ttl_dns_cache=resolve_again_s,
                socket_factory=self._make_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # nothing compressed is asked for, and some answers are bombs
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
        )

    async def post(
        self, url: URL, headers: Sequence[tuple[str, str]], body: bytes, timeout_s: float
    ) -> Answer:
        """Post a body, and return the answer. `NoAnswer` if there is none to its end."""
        timeout = aiohttp.ClientTimeout(
            total=timeout_s, sock_connect=min(CONNECT_TIMEOUT_S, timeout_s)
        )
        try:
            async with self._session.post(
                url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                found = response.headers
                return Answer(
                    response.status,
                    await _read(response),
                    found.get("Retry-After"),
                    found.get("Location"),
                )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_describe(error, url, timeout_s)) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def _make_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Return a socket to connect to an address, which is that of a name or of the URL."""
        family, kind, protocol, _, address = info
        if not self.allow_private and self._refuses(str(address[0])):
            raise PrivateAddress(str(address[0]))
        return socket.socket(family, kind, protocol)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer, up to a bound."""
    parts: list[bytes] = []
    size = 0
    while size < BODY_BYTES_MAX and (part := await response.content.readany()):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _describe(error: Exception, url: URL, timeout_s: float) -> str:
    """Return why there was no answer, in one line."""
    where = f"{url.host}:{url.port}"
    if isinstance(error, aiohttp.ServerTimeoutError):
        return f"no connection to {where} within {min(CONNECT_TIMEOUT_S, timeout_s):g} s"
    if isinstance(error, TimeoutError):
        return f"no complete answer within {timeout_s:g} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"cannot resolve {url.host}: {_reason(error.os_error)}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return printable(f"the certificate of {where} is not valid: {error.certificate_error}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {where}: {_reason(error.os_error)}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was cut within the answer"
    if isinstance(error, OSError):
        return f"the connection was cut: {_reason(error)}"
    return printable(f"no valid answer: {type(error).__name__}: {error}")


def _reason(error: OSError) -> str:
    """Return the reason of an error; that of one of `PrivateAddress`, or of several, as it is."""
    own = isinstance(error, socket.gaierror) or error.errno in (None, errno.EACCES)
    text = error.strerror if own else os.strerror(error.errno or 0)
    return printable(text or str(error) or type(error).__name__)
