"""Deliveries are CloudEvents in binary mode, as the official package reads them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from cloudevents.core.bindings.http import HTTPMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.delivery import Delivery
from tailrace.delivery.fetched import FetchedBatch
from tailrace.log.columns import from_records
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.subscription.endpoint.event_headers import EventHeaders, sequence_of
from tailrace.subscription.shard.attempts import Origin

PARTITION = Partition("shop.orders", 1, 7)
TIME_MS = 1_795_123_708_400
HEADERS = EventHeaders("shop.orders", "1f0c", "application/json")
FIELD = re.compile(r"[!-~](?:[ -~\t]*[!-~])?")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def headers_of(
    key: bytes | None = b"c7",
    headers: dict[str, bytes] | None = None,
    *,
    reset: int = 0,
    data: bytes = b'{"id":1}',
) -> list[tuple[str, str]]:
    record = Record(42, TIME_MS, Mode.SYNC, Op.INSERT, key, headers, data)
    batch = FetchedBatch(PARTITION, 42, 43, from_records([record]))
    delivery: Delivery[Any] = Delivery(batch, 0, 3)
    return HEADERS.of(delivery, Origin(PARTITION, 42, reset), 88)


def test_a_message_is_a_cloud_event() -> None:
    event: Any = from_binary(HTTPMessage(dict(headers_of()), b'{"id":1}'), JSONFormat())
    assert event.get_id() == "shop.orders/1.7@42"
    assert event.get_source() == "/tailrace/shop.orders/1f0c"
    assert event.get_type() == "shop.orders"
    assert event.get_time() == datetime(2026, 11, 19, 21, 28, 28, 400_000, tzinfo=UTC)
    assert event.get_datacontenttype() == "application/json"
    assert event.get_data() == {"id": 1}
    assert event.get_extension("partitionkey") == "c7"
    assert event.get_extension("sequence") == "000000.000001.0000000000000000042"
    assert event.get_extension("attempt") == "3"
    assert event.get_extension("epoch") == "88"


def test_a_message_that_is_read_again_after_a_reset_has_another_id() -> None:
    assert dict(headers_of(reset=2))["ce-id"] == "shop.orders/1.7@42+r2"


def test_a_message_without_a_key_has_no_partition_key() -> None:
    assert "ce-partitionkey" not in dict(headers_of(None))


@given(st.text(min_size=1, max_size=40))
def test_any_key_arrives_as_it_is(key: str) -> None:
    headers = dict(headers_of(key.encode()))
    assert FIELD.fullmatch(headers["ce-partitionkey"])
    event = from_binary(HTTPMessage(headers, b"{}"), JSONFormat())
    assert event.get_extension("partitionkey") == key


@given(st.dictionaries(st.text(max_size=20), st.binary(max_size=40), max_size=5))
def test_no_header_of_a_message_can_forge_another_one(own: dict[str, bytes]) -> None:
    plain = dict(headers_of())
    found = headers_of(headers=own)
    assert all(TOKEN.fullmatch(name) and not re.search(r"[^ -~]", value) for name, value in found)
    for name in plain.keys() - {"content-type", "ce-type"}:
        assert [value for each, value in found if each == name] == [plain[name]]


def test_headers_of_a_message_are_attributes_pass_on_traces_or_get_a_prefix() -> None:
    own = {
        "ce-type": b"com.shop.order.paid",
        "ce-subject": "Zoë".encode(),
        "ce-id": b"forged",
        "ce-sequence": b"forged",
        "ce-datacontenttype": b"forged",
        "traceparent": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "baggage": b"user=a%20b",
        "tracestate": b"a=1\r\nx-forged: 1",
        "country": b"IN",
        "my header": b"a b",
        "authorization": b"secret",
        "content-type": b"text/plain; charset=utf-8",
    }
    assert dict(headers_of(headers=own)).items() - dict(headers_of()).items() == {
        ("ce-type", "com.shop.order.paid"),
        ("ce-subject", "Zo%C3%AB"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("baggage", "user=a%20b"),
        ("tailrace-header-tracestate", "a=1%0D%0Ax-forged:%201"),
        ("tailrace-header-country", "IN"),
        ("tailrace-header-my%20header", "a%20b"),
        ("tailrace-header-authorization", "secret"),
        ("content-type", "text/plain; charset=utf-8"),
    }


def test_a_content_type_that_is_no_header_is_that_of_the_topic() -> None:
    forged = {"content-type": b"text/plain\r\nx-forged: 1"}
    assert dict(headers_of(headers=forged))["content-type"] == "application/json"


origins = st.builds(
    lambda reset, storage, offset: Origin(Partition("orders", storage, 0), offset, reset),
    st.integers(0, 10**6 - 1),
    st.integers(0, 10**6 - 1),
    st.integers(0, 2**63 - 1),
)


@given(origins, origins)
def test_the_sequence_orders_as_text_by_reset_storage_topic_and_offset(
    one: Origin, other: Origin
) -> None:
    def place(origin: Origin) -> tuple[int, int, int]:
        return origin.reset, origin.partition.storage, origin.offset

    assert (sequence_of(one) < sequence_of(other)) == (place(one) < place(other))
