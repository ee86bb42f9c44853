"""An endpoint that nothing can be delivered to, or nothing may be, is an error that names it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tailrace import InvalidValue
from tailrace.subscription.endpoint.definition import Endpoint, EndpointChange

URL = "https://crm.example/hook"
SECRET = "whsec_" + "A" * 32


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("crm.example/hook", "its scheme is missing"),
        ("ftp://crm.example/", "its scheme is ftp"),
        ("file:///etc/passwd", "its scheme is file"),
        ("https:///hook", "it has no host"),
        ("https://", "it has no host"),
        ("https://crm.example:0/", "its port is 0"),
        ("https://crm.example:99999/", "Port out of range"),
        ("https://[::1/", "Invalid IPv6 URL"),
        ("https://crm.example/a b", "it is not a URL"),
        ("https://crm.example/\r\nx: y", "it is not a URL"),
        ("https://crm.example/" + "a" * 2000, "more than 2,000 characters"),
        ("http://127.1/", "127.1 is no IP address"),
        ("http://2130706433/", "2130706433 is no IP address"),
        ("http://crm.example\\x/", "is no host name"),
        ("http://ü..example/", "is no host name"),
    ],
)
def test_a_url_that_is_not_valid_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        EndpointChange(url, allow_private=True).made()


@pytest.mark.parametrize("url", ["https://ann:hunter2@crm.example/", "https://hunter2@[::1"])
def test_credentials_in_a_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        EndpointChange(url).made()
    assert "hunter2" not in f"{raised.value}{raised.value.value}"


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:8000", "10.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "0.0.0.0"]
)
def test_a_private_address_needs_to_be_allowed(host: str) -> None:
    with pytest.raises(InvalidValue, match="private address, which is not allowed") as raised:
        EndpointChange(f"http://{host}/").made()
    assert "--allow-private" in str(raised.value)
    assert EndpointChange(f"http://{host}/", allow_private=True).made() is not None


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("timeout", "0s", "1ms to 1h"),
        ("timeout", "2h", "1ms to 1h"),
        ("timeout", "soon", "timeout"),
        ("retry_statuses", [404, 500], "from 300 to 499"),
        ("retry_statuses", [True], "from 300 to 499"),
        ("retry_statuses", 404, "a list of HTTP statuses"),
        ("retry_statuses", "404", "a list of HTTP statuses"),
        ("secret", "hunter2", "does not begin with whsec_"),
    ],
)
def test_an_option_out_of_its_range_is_refused(option: str, value: Any, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        EndpointChange(URL, **{option: value}).made()


@pytest.mark.parametrize(
    "options", [{"timeout": "5s"}, {"secret": SECRET}, {"allow_private": True}]
)
def test_options_without_an_endpoint_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=f"{next(iter(options))} is an option of an endpoint"):
        EndpointChange(**options).made()


def test_a_change_keeps_what_is_not_given() -> None:
    endpoint = EndpointChange(URL, "5s", SECRET, True, [409, 404, 404]).made()
    assert endpoint == Endpoint(URL, 5000, SECRET, True, (404, 409))
    assert EndpointChange(timeout="1s").applied(endpoint) == msgspec.structs.replace(
        endpoint, timeout_ms=1000
    )
    assert EndpointChange(secret="", retry_statuses=()).applied(endpoint) == Endpoint(
        URL, 5000, None, True
    )


def test_private_addresses_are_not_refused_while_the_url_is_one() -> None:
    endpoint = EndpointChange("http://10.0.0.1/", allow_private=True).made()
    assert endpoint is not None
    with pytest.raises(InvalidValue, match="private address"):
        EndpointChange(allow_private=False).applied(endpoint)


def test_no_representation_shows_the_secret() -> None:
    endpoint = EndpointChange(URL, secret=SECRET).made()
    change = EndpointChange(URL, secret=SECRET)
    assert SECRET not in f"{endpoint!r} {endpoint} {change!r} {[endpoint]}"
