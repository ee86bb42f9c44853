"""The headers of a delivery over HTTP: a message as a CloudEvent in binary mode.

ce-id            the position of the message, ``orders/1.7@42``; after a reset with its number
ce-source        the topic, and its identity: another topic of the name is another source
ce-type          the topic; or the message's own header of this name
ce-time          the time of the message
ce-partitionkey  its key
ce-sequence      rises for each key: the number of the reset, storage topic and offset
ce-attempt       the number of the attempt, from 1
ce-epoch         rises with each owner of the shard

A message's own headers ``ce-NAME`` are attributes, those of trace contexts keep their names, and
all others get a prefix. Values are percent-encoded as the HTTP binding of CloudEvents says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from tailrace.clock import utc_time
from tailrace.delivery.delivery import Delivery
from tailrace.subscription.shard.attempts import Origin

PREFIX: Final = "tailrace-header-"
"""The prefix of the headers of messages."""

PASSED_ON: Final = ("traceparent", "tracestate", "baggage")
"""Headers of messages that keep their names, so that traces go on."""

RESET_DIGITS: Final = 6
STORAGE_DIGITS: Final = 6
OFFSET_DIGITS: Final = 19

_SPECVERSION: Final = "1.0"
_CONTENT_TYPE: Final = "content-type"
_OWN: Final = frozenset((
    "id", "source", "specversion", "time", "datacontenttype", "data",
    "partitionkey", "sequence", "attempt", "epoch",
))  # fmt: skip
"""The attributes that a message's own headers do not replace."""

_ATTRIBUTE: Final = re.compile(r"ce-([a-z0-9]{1,20})", re.ASCII)
_TOKEN: Final = "!#$&'*+-.^_`|~"
_SECONDS_KEPT: Final = 64
_PRINTABLE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_PLAIN: Final = re.compile(rb"[!#-$&-~]+")
_PRINTED: Final = re.compile(r"[!-~](?:[ -~\t]*[!-~])?", re.ASCII)


def sequence_of(origin: Origin) -> str:
    """Return the text that rises with the messages of a key, also as text."""
    storage = origin.partition.storage
    return (
        f"{origin.reset:0{RESET_DIGITS}}.{storage:0{STORAGE_DIGITS}}"
        f".{origin.offset:0{OFFSET_DIGITS}}"
    )


class EventHeaders:
    """Makes the headers of the messages of one topic."""

    def __init__(self, topic: str, identity: str, content_type: str) -> None:
        self._type = encode_value(topic.encode())
        self._source = f"/tailrace/{quote(topic)}/{identity}"
        self._content_type = content_type

    def of(self, delivery: Delivery[Any], origin: Origin, epoch: int) -> list[tuple[str, str]]:
        """Return the headers of a delivery, without its signature."""
        headers = delivery.headers
        seconds, milliseconds = divmod(delivery.timestamp_ms, 1000)
        found = [
            ("content-type", self._media_type(headers)),
            ("ce-specversion", _SPECVERSION),
            ("ce-id", str(origin)),
            ("ce-source", self._source),
            ("ce-time", f"{_second(seconds)}.{milliseconds:03}Z"),
            ("ce-sequence", sequence_of(origin)),
            ("ce-attempt", str(delivery.attempt)),
            ("ce-epoch", str(epoch)),
        ]
        if delivery.key_bytes:
            found.append(("ce-partitionkey", encode_value(delivery.key_bytes)))
        if not headers:
            found.append(("ce-type", self._type))
            return found
        own = dict(_own_headers(headers))
        return [*found, *({"ce-type": self._type} | own).items()]

    def _media_type(self, headers: Mapping[str, bytes]) -> str:
        own = headers.get(_CONTENT_TYPE)
        if own is None:
            return self._content_type
        text = own.decode("utf-8", "replace")
        return text if _PRINTED.fullmatch(text) else self._content_type


@lru_cache(_SECONDS_KEPT)
def _second(seconds: int) -> str:
    """Return the text of a second; the messages of one have it in common."""
    return utc_time(seconds * 1000).isoformat(timespec="seconds").removesuffix("+00:00")


def encode_value(value: bytes) -> str:
    """Return the value of a header: printable ASCII as it is, all else percent-encoded."""
    if _PLAIN.fullmatch(value):
        return value.decode("ascii")
    return quote(value, safe=_PRINTABLE)


def _own_headers(headers: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield the headers of a message as those of its request."""
    for name, value in headers.items():
        if name == _CONTENT_TYPE:
            continue
        attribute = _ATTRIBUTE.fullmatch(name)
        if attribute is None:
            text = value.decode("latin-1")
            if name in PASSED_ON and _PRINTED.fullmatch(text):
                yield name, text
            else:
                yield PREFIX + quote(name, safe=_TOKEN), encode_value(value)
        elif value and attribute[1] not in _OWN:
            yield name, encode_value(value)
