"""The check of the pipeline act, from the files, the database and the topic alone.

Nothing that the pipeline says of itself is asked: the shops' files say what there is, and what lies
in Parquet, in SQLite and in the topic is compared with them, sale by sale.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

import tailrace
from tailrace.demo.report import Row
from tailrace.demo.sales import Sale
from tailrace.message import Mode

FILES: Final = "shops"
PARQUET: Final = "parquet"
DATABASE: Final = "sales.db"
TOPIC: Final = "sales"

_FIELDS: Final = Sale.__struct_fields__
_decode = msgspec.json.Decoder(Sale).decode


def compared(directory: Path, before_failure: int) -> list[Row]:
    """The rows of the closing table.

    `before_failure` is how many rows SQLite had when a batch was refused: where one job writes to
    all three, that is where all three are left.
    """
    sales = _in_files(directory)
    allowed = [sale for sale in sales if sale.total >= 0]
    topic = list(_in_topic(directory))
    database = list(_in_sqlite(directory))
    promises = [
        ("sales in Parquet exactly once", sales, _in_parquet(directory)),
        ("sales in the topic exactly once", sales, topic),
        ("sales in SQLite exactly once", allowed, database),
    ]
    shops = _by_shop(sales)
    in_order = shops.items() & _by_shop(topic).items()
    return [
        *(
            Row(promise, expected=len(wanted), seen=once(wanted, found), without=before_failure)
            for promise, wanted, found in promises
        ),
        Row(
            "sales left out of SQLite, acknowledged",
            expected=len(sales) - len(allowed),
            seen=len(set(sales) - set(database)),
            without=len(sales) - before_failure,
        ),
        Row(
            "shops whose sales the topic has in order",
            expected=len(shops),
            seen=len(in_order),
            without=None,
        ),
    ]


def once(wanted: Iterable[Sale], found: Iterable[Sale]) -> int:
    """How many wanted sales were found exactly once, less those that nobody wanted."""
    times = Counter(found)
    alone = sum(times.pop(sale, 0) == 1 for sale in wanted)
    return alone - times.total()


def _in_files(directory: Path) -> list[Sale]:
    """What the shops wrote down, shop by shop, in order."""
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
                is_sale = records["mode"].to_numpy() != Mode.COMPLETE
                values: list[Any] = records.filter(pa.array(is_sale))["value"].to_pylist()
                yield from map(_decode, values)


def _by_shop(sales: Iterable[Sale]) -> dict[str, tuple[int, ...]]:
    numbers: dict[str, list[int]] = {}
    for sale in sales:
        numbers.setdefault(sale.shop, []).append(sale.number)
    return {shop: tuple(each) for shop, each in numbers.items()}
