"""`python -m bench`: measure, print the table, and write `bench/results.md`.

A run of all groups at the normal scale writes the results. With `--only` or `--quick` it only
prints them. The exit status is 0 also if goals are missed; the table shows them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import (
    append,
    durable,
    endpoint,
    group,
    growth,
    kafka,
    machine,
    pipeline,
    push,
    queue,
    queue_kills,
    read,
    reader,
    source,
    spark,
    startup,
)
from bench.measure import FULL, NORMAL, QUICK, Scale, say
from bench.report import Row, render, summary

RESULTS = Path(__file__).with_name("results.md")
GROUPS: dict[str, Callable[[Scale], list[Row]]] = {
    "append": append.rows,
    "push": push.rows,
    "durable": durable.rows,
    "read": read.rows,
    "group": group.rows,
    "queue": queue.rows,
    "queue-kills": queue_kills.rows,
    "endpoint": endpoint.rows,
    "kafka": kafka.rows,
    "growth": growth.rows,
    "startup": startup.rows,
    "reader": reader.rows,
    "source": source.rows,
    "spark": spark.rows,
    "pipeline": pipeline.rows,
}


def main(arguments: Sequence[str]) -> int:
    """Run the chosen groups, and print or write the results."""
    chosen = _parse(arguments)
    scale: Scale = chosen.scale
    facts = machine.facts()
    rows = []
    for name in chosen.only or GROUPS:
        for row in GROUPS[name](scale):
            rows.append(row)
            say(summary(row))
    page = render(facts, rows)
    print(page)
    if not chosen.only and scale is not QUICK:
        RESULTS.write_text(page)
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=GROUPS, help="one group; may be repeated"
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--quick", dest="scale", action="store_const", const=QUICK, help="a fifth of the work"
    )
    sizes.add_argument(
        "--full",
        dest="scale",
        action="store_const",
        const=FULL,
        help="10^7 single pushes; half an hour",
    )
    parser.set_defaults(scale=NORMAL)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
