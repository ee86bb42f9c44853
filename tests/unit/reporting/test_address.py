"""The addresses at which something listens."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidValue
from tailrace.reporting.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("9464", Address("127.0.0.1", 9464), "127.0.0.1:9464"),
        (9464, Address("127.0.0.1", 9464), "127.0.0.1:9464"),
        ("0", Address("127.0.0.1", 0), "127.0.0.1:0"),
        ("0.0.0.0:9464", Address("0.0.0.0", 9464), "0.0.0.0:9464"),
        ("metrics.local:80", Address("metrics.local", 80), "metrics.local:80"),
        ("[::1]:9464", Address("::1", 9464), "[::1]:9464"),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(
    text: object, address: Address, shown: str
) -> None:
    assert parse_address(text, "listen") == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["", ":9464", "host", "host:", "host:x", "::1:5", "65536", True])
def test_anything_else_is_refused_with_the_form(text: object) -> None:
    with pytest.raises(InvalidValue, match=r"PORT or HOST:PORT, such as 9464 or 0\.0\.0\.0:9464"):
        parse_address(text, "listen")
