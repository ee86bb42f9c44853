"""Deliveries of one worker to the endpoint of its subscription.

Only workers load this module: it needs aiohttp, which is an extra.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from yarl import URL

from tailrace.clock import Clock, utc_time
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.outcome import SUCCESS, CallOutcome
from tailrace.delivery.retry import Retry
from tailrace.errors import InvalidValue
from tailrace.subscription.endpoint.answer import Delays, no_answer, outcome_of_failure
from tailrace.subscription.endpoint.client import EndpointClient, NoAnswer
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.endpoint.event_headers import EventHeaders
from tailrace.subscription.endpoint.signature import signature_headers
from tailrace.subscription.endpoint.signing_keys import SigningKeys

USER_AGENT: Final = "tailrace"


class _Target(NamedTuple):
    """What deliveries need of an endpoint. `keys` is None without a secret."""

    endpoint: Endpoint
    retry: Retry
    url: URL
    timeout_s: float
    keys: SigningKeys | None


class EndpointDeliveries:
    """Posts messages to an endpoint. One event loop delivers; any thread may call `follow`.

    No request takes longer than `timeout_s`, also if the endpoint gets a longer timeout.
    `InvalidValue` if the keys of the endpoint cannot be read.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        retry: Retry,
        headers: EventHeaders,
        *,
        connections: int,
        timeout_s: float,
        clock: Clock,
        make_client: Callable[[int], EndpointClient] = EndpointClient,
    ) -> None:
        self._headers = headers
        self._connections = connections
        self._timeout_s = timeout_s
        self._clock = clock
        self._make_client = make_client
        self._client: EndpointClient | None = None
        self._replaced: set[asyncio.Task[None]] = set()
        keys = self._keys_of(endpoint)
        if keys is not None:
            keys.current()
        self._target = self._target_of(endpoint, retry, keys)

    def follow(self, endpoint: Endpoint, retry: Retry) -> None:
        """Deliver to a changed endpoint from now on. While the keys of a new secret cannot be read,
        nothing is sent."""
        before = self._target
        if (endpoint, retry) == (before.endpoint, before.retry):
            return
        same = endpoint.secret == before.endpoint.secret
        keys = before.keys if same else self._keys_of(endpoint)
        self._target = self._target_of(endpoint, retry, keys)

    async def deliver(
        self, delivery: Delivery[Any], origin: Any, epoch: int, delays: int
    ) -> CallOutcome:
        """Post a message, and return the outcome. `delays` is the number of the delay that follows
        if it fails, from 1."""
        target = self._target
        headers = self._headers.of(delivery, origin, epoch)
        headers.append(("user-agent", USER_AGENT))
        now_ms = self._clock.now_ms()
        if target.keys is not None:
            try:
                keys = target.keys.current()
            except InvalidValue as error:
                return no_answer(str(error))
            headers += signature_headers(keys, str(origin), now_ms // 1000, delivery.data)
        client = self._client_for(target)
        try:
            answer = await client.post(target.url, headers, delivery.data, target.timeout_s)
        except NoAnswer as error:
            return no_answer(str(error))
        if answer.succeeded:
            return SUCCESS
        usual = target.retry.delay(delays, random.random())
        now = utc_time(self._clock.now_ms())
        retried = target.endpoint.retry_statuses
        return outcome_of_failure(answer, retried, Delays(usual, target.retry.max), now)

    async def close(self) -> None:
        """Close all connections."""
        for task in self._replaced:
            task.cancel()
        if self._client is not None:
            await self._client.close()

    def _client_for(self, target: _Target) -> EndpointClient:
        """Return the client; a new one if private addresses are no longer allowed, as connections
        to them are open."""
        allow_private = target.endpoint.allow_private
        if self._client is not None and self._client.allow_private and not allow_private:
            task = asyncio.get_running_loop().create_task(self._close_later(self._client))
            self._replaced.add(task)
            task.add_done_callback(self._replaced.discard)
            self._client = None
        if self._client is None:
            self._client = self._make_client(self._connections)
        self._client.allow_private = allow_private
        return self._client

    async def _close_later(self, client: EndpointClient) -> None:
        """Close a client once its requests have ended."""
        try:
            await asyncio.sleep(self._timeout_s)
        finally:
            await client.close()

    def _keys_of(self, endpoint: Endpoint) -> SigningKeys | None:
        secret = endpoint.secret
        return None if secret is None else SigningKeys(secret, self._clock.monotonic)

    def _target_of(self, endpoint: Endpoint, retry: Retry, keys: SigningKeys | None) -> _Target:
        timeout_s = min(endpoint.timeout.total_seconds(), self._timeout_s)
        return _Target(endpoint, retry, URL(endpoint.url), timeout_s, keys)
