"""Which IP addresses an endpoint may have: public ones, unless private ones are allowed.

Private is every address that is not reachable from the whole internet: loopback, private and
link-local networks, shared addresses of providers, multicast, unspecified and reserved ones, and
that of Azure's platform, which is public by its number only. An IPv6 address that carries an IPv4
address is judged by both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_NAT64: Final = IPv6Network("64:ff9b::/96")
_OF_AZURE: Final = IPv4Address("168.63.129.16")
_IPV4_COMPATIBLE: Final = IPv6Network("::/96")
_IPV4_BITS: Final = (1 << 32) - 1
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII | re.IGNORECASE)
_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost")


def is_private(text: str) -> bool:
    """True if an address is private. `ValueError` if the text is no address."""
    return any(map(_is_private, _all_addresses(ip_address(text))))


def literal_address(host: str) -> str | None:
    """Return the address that the host of a URL is; None if it is a name.

    `ValueError` for numbers that only some systems read as an address, such as ``127.1``.
    """
    try:
        return str(ip_address(host))
    except ValueError:
        if _looks_numeric(host):
            raise
        return None


def is_name(host: str) -> bool:
    """True if a host can be resolved as a name. All libraries read such a name alike."""
    try:
        labels = host.removesuffix(".").encode("idna").decode("ascii").split(".")
    except UnicodeError:
        return False
    return all(map(_LABEL.fullmatch, labels))


def is_local_name(host: str) -> bool:
    """True if a name always means this machine."""
    name = host.rstrip(".").lower()
    return name in _LOCAL_NAMES or name.endswith(".localhost")


def _looks_numeric(host: str) -> bool:
    """True if the last part of a host is a number: no name of the internet ends like that."""
    last = host.rstrip(".").rpartition(".")[2].lower()
    return _NUMBER.fullmatch(last) is not None


def _all_addresses(address: Address) -> Iterator[Address]:
    """Yield an address, and those of version 4 that it carries."""
    yield address
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _NAT64 or address in _IPV4_COMPATIBLE:
        yield IPv4Address(int(address) & _IPV4_BITS)


def _is_private(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None or address in _NAT64:
            return False  # the address of version 4 decides
        if address.is_site_local:
            return True
    if address == _OF_AZURE:
        return True
    return not address.is_global or address.is_multicast or address.is_reserved
