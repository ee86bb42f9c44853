"""`tailrace demo`: failures happen, the guarantees hold, and an auditor checks them.

The first act is a topic. Several processes push the orders of many customers while the topic is
scaled from 4 partitions to 12 and to 8. One producer is killed and restarted. A group of processes
consumes the orders, and its leader is killed. An independent auditor compares the producers'
receipts with the orders that the consumers received.

The second act is a subscription. Its workers post orders to an HTTP endpoint in another process,
which answers 503 for some customers for some seconds, and 422 for one. A worker is frozen and
wakes. Then the endpoint is fixed and the dead letters are redelivered. The endpoint's own log is
compared with the receipts.

The third act is a pipeline. Growing files are written to Parquet, SQLite and a topic. One row
violates a constraint of the database: that writer stops, the others finish, and an operator
acknowledges the row. Then the rows of the files are compared with the rows in the three sinks.

The closing table shows each guarantee with the expected number, the number seen, and the number
without Tailrace.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.demo.stage import Display

ORDERS: Final = 400_000
DELIVERIES: Final = 6_000
SALES: Final = 200_000


def run(
    directory: Path,
    orders: int,
    deliveries: int,
    sales: int,
    display: Display,
    master: str | None = None,
) -> int:
    """Play the demo in its own directory. Return 0 if every guarantee held, else 1.

    Files of an earlier demo are deleted. Raise `IncompatibleHub` for any other directory that is
    not empty. Progress goes to the display, the closing table to stdout. The pipeline runs on the
    Spark `master`; None is the one that Spark is configured with, and without Spark or Java the
    direct engine. Without aiohttp the endpoint act is skipped. Raise `BackendUnavailable` if the
    named master cannot be reached.
    """
    # Imported here because the command line must list its commands without loading Arrow.
    from tailrace.demo.play import play

    return play(directory, orders, deliveries, sales, display, master)
