"""`tailrace demo`: the guarantees, seen to hold while things go wrong, and audited.

The first act is a topic: several processes push the orders of many customers while it is scaled
from 4 partitions to 12 and to 8, and one of them is killed and started again. Then everything is
read back in lineage order, and an independent auditor compares it with the producers' receipts.

The second is a pipeline: files that grow are written to Parquet, SQLite and a topic. One row breaks
a constraint of the database, so that writer stops, the others finish, and an operator sets the row
aside. Then the files are compared with what lies in the three, row by row.

The closing table says what was promised, what was seen, and what it would have been without
Tailrace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ORDERS: Final = 400_000
SALES: Final = 200_000


def run(directory: Path, orders: int = ORDERS, sales: int = SALES) -> int:
    """Play the demo in a directory that only demos use; 0 when every promise held, else 1.

    What an earlier demo left there is deleted. A directory that is anything else is refused with
    `IncompatibleHub`. Progress goes to stderr, the table to stdout. Without Spark or Java, the
    pipeline runs by the direct engine.
    """
    # Here, because the command line must not load Arrow to list its commands.
    from tailrace.demo.play import play

    return play(directory, orders, sales)
