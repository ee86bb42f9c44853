"""The address of a server: ``[HOST:]PORT``."""

from __future__ import annotations

from typing import Final, NamedTuple

from tailrace.errors import InvalidValue

LOOPBACK: Final = "127.0.0.1"
ADDRESS_VALID: Final = "PORT or HOST:PORT, such as 9464 or 0.0.0.0:9464; port 0 is any free one"


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(value: object, what: str) -> Address:
    """Return an address. Without a host it is that of this machine alone, 127.0.0.1."""
    if isinstance(value, Address):
        return value
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    before, colon, port = text.rpartition(":")
    host = before.removeprefix("[").removesuffix("]") if before.startswith("[") else before
    valid_host = not colon or (bool(host) and (":" not in before or before != host))
    if not (valid_host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise InvalidValue(what, value, ADDRESS_VALID)
    return Address(host or LOOPBACK, int(port))
