"""Earliest and latest offsets of a partition."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidValue
from tailrace.message import Position
from tailrace.topic.offset_spec import AtTime, Extreme, Newest, OffsetSpec, parse_offset_spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("earliest", Extreme.EARLIEST),
        ("latest", Extreme.LATEST),
        ("-100", Newest(100)),
        ("@1970-01-01T00:00:01Z", AtTime(1000)),
        ("@1970-01-01 00:00:01", AtTime(1000)),
        ("@1960-01-01", AtTime(0)),
        ("orders/1.7@42", Position("orders", 1, 7, 42)),
    ],
)
def test_every_form_is_parsed(text: str, spec: OffsetSpec) -> None:
    assert parse_offset_spec(text) == spec


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("tomorrow", "earliest, latest, -100, @2026-01-01T00:00Z, or a position"),
        ("-0", "earliest, latest, -100"),
        ("-1000001", "earliest, latest, -100"),
        ("", "earliest, latest, -100"),
        ("42", "earliest, latest, -100"),
        ("@soon", "@ and ISO 8601, such as @2026-01-01T00:00Z"),
        ("orders/1.7", "TOPIC/STORAGE.PARTITION@OFFSET"),
        ("orders/1.7@x", "TOPIC/STORAGE.PARTITION@OFFSET"),
    ],
)
def test_an_invalid_spec_is_named_with_the_form_that_was_meant(text: str, valid: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_offset_spec(text, "--from")
    assert str(caught.value).startswith(f"--from is {text!r} · valid: {valid}")
