"""Connections to private addresses are refused at every connection, however they are named."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from tailrace.subscription.endpoint.answer import Answer
from tailrace.subscription.endpoint.client import EndpointClient, NoAnswer
from tests.support.http_endpoint import HttpEndpoint, answers

ELSEWHERE = "127.0.0.2"
"""An address of this machine that stands for a private one, where 127.0.0.1 stands for a public
one."""


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    with HttpEndpoint() as server:
        yield server


def with_client(act: Callable[[EndpointClient], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        client = EndpointClient(4, **options)
        try:
            return await act(client)
        finally:
            await client.close()

    return asyncio.run(run())


def names(monkeypatch: pytest.MonkeyPatch, *addresses: list[str]) -> list[str]:
    """Let names resolve to these addresses, one list for each look; return the names looked up."""
    looks, asked = iter(addresses), list[str]()

    def resolve(host: Any, port: Any, *rest: Any, **options: Any) -> list[Any]:
        asked.append(str(host))
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in next(looks)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


async def post(client: EndpointClient, url: str) -> Answer:
    return await client.post(URL(url), [], b"{}", 5.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_an_address_in_the_url_is_checked(endpoint: HttpEndpoint, host: str) -> None:
    with pytest.raises(NoAnswer, match="is a private address, which is not allowed"):
        with_client(lambda client: post(client, f"http://{host}:{endpoint.port}/"))
    assert endpoint.requests == []


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["10.0.0.1", "::1"]],
)
def test_a_name_that_resolves_to_a_private_address_is_refused(
    endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    asked = names(monkeypatch, addresses)
    with pytest.raises(NoAnswer, match="is a private address, which is not allowed"):
        with_client(lambda client: post(client, f"http://crm.example:{endpoint.port}/"))
    assert asked == ["crm.example"]
    assert endpoint.requests == []


def test_a_name_that_resolves_to_a_private_address_at_the_second_look_is_refused(
    endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = names(monkeypatch, ["127.0.0.1"], [ELSEWHERE])
    endpoint.answer = lambda posted, before: answers(200, connection="close")
    url = f"http://crm.example:{endpoint.port}/"

    async def twice(client: EndpointClient) -> None:
        assert (await post(client, url)).status == 200
        with pytest.raises(NoAnswer, match=f"{ELSEWHERE} is a private address"):
            await post(client, url)

    with_client(twice, refuses=lambda address: address == ELSEWHERE, resolve_again_s=0)
    assert asked == ["crm.example"] * 2
    assert len(endpoint.requests) == 1


def test_private_addresses_can_be_allowed(endpoint: HttpEndpoint) -> None:
    async def act(client: EndpointClient) -> Answer:
        client.allow_private = True
        return await post(client, endpoint.url)

    assert with_client(act).status == 200


def test_a_compressed_answer_is_not_expanded(endpoint: HttpEndpoint) -> None:
    bomb = gzip.compress(bytes(20_000_000), 1)[:50_000]
    endpoint.answer = lambda posted, before: answers(500, bomb, content_encoding="gzip")

    async def act(client: EndpointClient) -> Answer:
        client.allow_private = True
        return await post(client, endpoint.url)

    assert with_client(act).body == bomb
    assert "accept-encoding" not in endpoint.requests[0].headers


def test_no_proxy_of_the_environment_is_used(
    endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpEndpoint() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)

        async def act(client: EndpointClient) -> Answer:
            client.allow_private = True
            return await post(client, endpoint.url)

        assert with_client(act).status == 200
        assert proxy.requests == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl on this machine")
def test_a_certificate_that_nobody_trusts_is_an_error(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=crm.example"
    subprocess.run(
        [*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    async def act(client: EndpointClient) -> Answer:
        client.allow_private = True
        return await post(client, server.url)

    with (
        HttpEndpoint(tls=tls) as server,
        pytest.raises(NoAnswer, match=r"the certificate of 127\.0\.0\.1:\d+ is not valid: .*self"),
    ):
        with_client(act)
    assert server.requests == []
