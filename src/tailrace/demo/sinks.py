"""The audit of the pipeline act: the shops' files against Parquet, SQLite and the topic.

The audit reads nothing that the pipeline reports of itself. It compares the sales in the files with
the sales in each sink, sale by sale.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.dataset as ds

import tailrace
from tailrace.demo.report import Row
from tailrace.demo.sales import Sale

FILES: Final = "shops"
PARQUET: Final = "parquet"
DATABASE: Final = "sales.db"
TOPIC: Final = "sales"

_FIELDS: Final = Sale.__struct_fields__
_decode = msgspec.json.Decoder(Sale).decode


def sink_rows(directory: Path, before_failure: int) -> list[Row]:
    """Return the rows of the closing table.

    `before_failure` is the number of rows in SQLite when it refused a batch. One job that writes to
    all three sinks would leave all three there.
    """
    sales = _in_files(directory)
    allowed = [sale for sale in sales if sale.total >= 0]
    topic = list(_in_topic(directory))
    database = list(_in_sqlite(directory))
    guarantees = [
        ("sales written to Parquet exactly once", sales, _in_parquet(directory)),
        ("sales written to the topic exactly once", sales, topic),
        ("sales written to SQLite exactly once", allowed, database),
    ]
    shops = _by_shop(sales)
    in_order = shops.items() & _by_shop(topic).items()
    return [
        *(
            Row(guarantee, expected=len(wanted), seen=once(wanted, found), without=before_failure)
            for guarantee, wanted, found in guarantees
        ),
        Row(
            "sales skipped in SQLite, acknowledged",
            expected=len(sales) - len(allowed),
            seen=len(set(sales) - set(database)),
            without=len(sales) - before_failure,
        ),
        Row(
            "shops with all sales in order in the topic",
            expected=len(shops),
            seen=len(in_order),
            without=None,
        ),
    ]


def once(wanted: Iterable[Sale], found: Iterable[Sale]) -> int:
    """Return the number of wanted sales found exactly once, minus the unwanted sales found."""
    times = Counter(found)
    alone = sum(times.pop(sale, 0) == 1 for sale in wanted)
    return alone - times.total()


def _in_files(directory: Path) -> list[Sale]:
    """Return the sales in the shops' files, shop by shop, in order."""
    files = sorted((directory / FILES).glob("*.jsonl"))
    return [_decode(line) for file in files for line in file.read_bytes().splitlines()]


def _in_parquet(directory: Path) -> Iterable[Sale]:
    table = ds.dataset(directory / PARQUET, format="parquet").to_table(columns=list(_FIELDS))
    return map(Sale, *(table[name].to_pylist() for name in _FIELDS))


def _in_sqlite(directory: Path) -> Iterable[Sale]:
    connection = sqlite3.connect(directory / DATABASE)
    try:
        for row in connection.execute(f"SELECT {', '.join(_FIELDS)} FROM sales"):
            yield Sale(*row)
    finally:
        connection.close()


def _in_topic(directory: Path) -> Iterable[Sale]:
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        reader = hub.topic(TOPIC).reader()
        while reads := reader.poll():
            for _, records in reads:
                values: list[Any] = records["value"].to_pylist()
                yield from map(_decode, values)


def _by_shop(sales: Iterable[Sale]) -> dict[str, tuple[int, ...]]:
    numbers: dict[str, list[int]] = {}
    for sale in sales:
        numbers.setdefault(sale.shop, []).append(sale.number)
    return {shop: tuple(each) for shop, each in numbers.items()}
