"""JSON values parsed by Arrow, and what is left to Spark."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from tailrace.spark.frames.json_values import JsonValues, is_alike

LINE = StructType().add("sku", StringType()).add("n", IntegerType())
ORDER = StructType().add("id", LongType()).add("name", StringType()).add("lines", ArrayType(LINE))


def _parse(values: list[bytes]) -> tuple[list[Any], list[bytes | None]]:
    structs, left = JsonValues(ORDER)(pa.array(values, pa.binary()))
    return structs.to_pylist(), left.to_pylist()


def _order(number: int) -> dict[str, Any]:
    lines = [{"sku": f"s{n}", "n": n} for n in range(number % 3)]
    return {"id": number, "name": f"c{number}" if number % 5 else None, "lines": lines}


def test_each_object_becomes_a_struct() -> None:
    orders = [_order(number) for number in range(1000)]
    structs, left = _parse([json.dumps(order).encode() for order in orders])
    assert structs == orders
    assert left == [None] * 1000


def test_line_breaks_within_a_value_do_not_divide_it() -> None:
    orders = [_order(number) for number in range(100)]
    structs, left = _parse([json.dumps(order, indent=2).encode() for order in orders])
    assert structs == orders
    assert left == [None] * 100


def test_missing_fields_are_null_and_others_are_ignored() -> None:
    structs, _ = _parse([b'{"other": [1, "x"], "id": 3}', b"{}"])
    assert structs == [{"id": 3, "name": None, "lines": None}, dict.fromkeys(ORDER.names)]


@pytest.mark.parametrize(
    "refused",
    [b"", b"3", b"null", b"[]", b'{"id": 1', b'{"id": 1}{"id": 2}', b'{"id": 1.5}', b'{"id": "x"}',
     b'{"name": 7}', b'{"name": "a\nb"}', b'{"name": "\xff"}', b'{"id": 1, "id": 2}',
     b'{"id": 99999999999999999999}', b" {}", b"{'id': 1}"],
)  # fmt: skip
def test_a_value_that_arrow_refuses_is_left_to_spark_and_its_neighbours_are_parsed(
    refused: bytes,
) -> None:
    values = [json.dumps(_order(number)).encode() for number in range(1000)]
    values[700] = refused
    structs, left = _parse(values)
    assert left[700] == refused
    assert structs[700] is None
    for row in range(1000):
        assert (structs[row] is None) == (left[row] is not None)
        assert structs[row] == _order(row) or left[row] == values[row]
    assert sum(each is not None for each in left) <= 32


def test_every_row_keeps_its_place_wherever_values_are_refused() -> None:
    chance = random.Random(7)
    for _ in range(50):
        values = [
            b"no" if chance.random() < 0.02 else json.dumps(_order(row)).encode()
            for row in range(chance.randrange(400))
        ]
        structs, left = _parse(values)
        assert len(structs) == len(left) == len(values)
        for row, value in enumerate(values):
            assert left[row] == value if structs[row] is None else structs[row] == _order(row)


def test_an_object_of_two_values_is_no_object_of_one() -> None:
    values = [json.dumps(_order(number)).encode() for number in range(40)]
    values[10:12] = [b'{"id": 1}{"id": 2}', b'{"id":']
    structs, left = _parse(values)
    assert structs[:10] == [_order(number) for number in range(10)] or left[:10] == values[:10]
    assert left[10:12] == values[10:12]


@pytest.mark.parametrize(
    "kind",
    [FloatType(), TimestampType(), DateType(), DecimalType(9, 2), BinaryType(),
     MapType(StringType(), IntegerType()), StringType("UNICODE"), VarcharType(3), StructType()],
)  # fmt: skip
def test_types_that_arrow_reads_in_another_way_are_left_to_spark(kind: DataType) -> None:
    assert is_alike(ORDER)
    assert not is_alike(StructType().add("a", ArrayType(StructType().add("b", kind))))


def test_fields_of_the_same_name_are_left_to_spark() -> None:
    assert not is_alike(StructType().add("a", LongType()).add("a", LongType()))
