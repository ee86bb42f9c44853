"""`tailrace demo`: a topic is re-scaled under load, a producer is killed, and all is audited.

Several processes push the orders of many customers while the topic is scaled from 4 partitions to
12 and to 8, and one of them is killed and started again. Then everything is read back in lineage
order, and an independent auditor compares it with the producers' receipts. The closing table says
what was promised, what was seen, and what the same orders would have met without Tailrace.
"""

from __future__ import annotations

from pathlib import Path


def run(directory: Path, orders: int = 400_000) -> int:
    """Play the demo in a directory that only demos use; 0 when every promise held, else 1.

    What an earlier demo left there is deleted. A directory that is anything else is refused with
    `IncompatibleHub`. Progress goes to stderr, the table to stdout.
    """
    # Here, because the command line must not load Arrow to list its commands.
    from tailrace.demo.play import play

    return play(directory, orders)
