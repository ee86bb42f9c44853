"""The check of the pipeline act, from the files, the database and the topic alone.

Nothing that the pipeline says of itself is asked: the shops' files say what there is, and what lies
in Parquet, in SQLite and in the topic is compared with them, sale by sale.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.compute as pc
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


def compared(directory: Path, rows: int, before_failure: int) -> list[Row]:
    """The rows of the closing table.

    `rows` is how many sales the shops were to make, `before_failure` how many rows SQLite had when
    a batch was refused: where one job writes to all three, that is where all three are left.
    """
    sales = sold(directory)
    allowed = [sale for sale in sales if sale.total >= 0]
    in_sqlite = list(_in_sqlite(directory))
    in_topic = list(_in_topic(directory))
    left_out = len(set(sales) - set(in_sqlite))
    return [
        Row("sales in Parquet exactly once", rows, once(sales, _in_parquet(directory)),
            before_failure),
        Row("sales in the topic exactly once", rows, once(sales, in_topic), before_failure),
        Row("shops whose sales the topic has in order", len(_by_shop(sales)),
            _in_order(sales, in_topic), None),
        Row("sales in SQLite exactly once", rows - 1, once(allowed, in_sqlite), before_failure),
        Row("sales left out of SQLite, acknowledged", 1, left_out, rows - before_failure),
    ]  # fmt: skip


def once(wanted: Iterable[Sale], found: Iterable[Sale]) -> int:
    """How many wanted sales were found exactly once, less those that nobody wanted."""
    times = Counter(found)
    alone = sum(times.pop(sale, 0) == 1 for sale in wanted)
    return alone - times.total()


def sold(directory: Path) -> list[Sale]:
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
                rows = records.filter(pc.not_equal(records["mode"], Mode.COMPLETE))
                yield from map(_decode, rows["value"].to_pylist())


def _in_order(sales: Iterable[Sale], found: Iterable[Sale]) -> int:
    seen = _by_shop(found)
    return sum(seen.get(shop) == numbers for shop, numbers in _by_shop(sales).items())


def _by_shop(sales: Iterable[Sale]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for sale in sales:
        numbers.setdefault(sale.shop, []).append(sale.number)
    return numbers
