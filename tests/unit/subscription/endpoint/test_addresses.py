"""Addresses that are not reachable from the whole internet are private, in all their forms."""

from __future__ import annotations

import pytest

from tailrace.subscription.endpoint.addresses import (
    is_local_name,
    is_name,
    is_private,
    literal_address,
)

PRIVATE = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255",
    "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1",
    "fec0::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe", "::127.0.0.1", "::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1",
    "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "168.63.129.16", "::ffff:168.63.129.16",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1",
          "64:ff9b::101:101"]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_this_machine_or_of_a_private_network_is_private(address: str) -> None:
    assert is_private(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert not is_private(address)


def test_a_host_is_an_address_or_a_name() -> None:
    assert literal_address("10.0.0.1") == "10.0.0.1"
    assert literal_address("::1") == "::1"
    assert literal_address("crm.example") is None
    assert literal_address("0xdeadbeef.example") is None


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "10.0.0.0x1"])
def test_a_number_that_only_some_systems_read_as_an_address_is_refused(host: str) -> None:
    with pytest.raises(ValueError):
        literal_address(host)


@pytest.mark.parametrize("host", ["crm", "crm.example.", "my_crm-1.example", "bücher.example"])
def test_a_name_has_labels_of_letters_digits_and_hyphens(host: str) -> None:
    assert is_name(host)


@pytest.mark.parametrize(
    "host",
    ["crm..example", ".", "a" * 64 + ".example", "crm\\x.example", "c%6dm", "*.example", "ü..b"],
)
def test_what_libraries_read_differently_is_no_name(host: str) -> None:
    assert not is_name(host)


def test_names_of_this_machine_are_local() -> None:
    assert all(map(is_local_name, ["localhost", "LOCALHOST.", "crm.localhost"]))
    assert not is_local_name("localhost.example")
