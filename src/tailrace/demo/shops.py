"""The shops of the demo, in one process: each appends its sales to a file.

The shops know nothing of the readers of the files. A file may end in the middle of a line, as with
every program that writes through a buffer.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tailrace.demo.sales import SHOPS, Sales

_PIECES: Final = 50
_SECONDS: Final = 5.0
"""Seconds over which the shops write."""


def write_sales(directory: Path, rows: int) -> None:
    """Append every sale to the file of its shop, a few at a time."""
    encode = msgspec.json.Encoder().encode
    with ExitStack() as stack:
        files = {
            shop: stack.enter_context(open(directory / f"{shop}.jsonl", "ab")) for shop in SHOPS
        }
        for index, sale in enumerate(Sales(rows)):
            files[sale.shop].write(encode(sale) + b"\n")
            if index % (rows // _PIECES) == 0:
                time.sleep(_SECONDS / _PIECES)


@contextmanager
def open_shops(directory: Path, rows: int) -> Iterator[None]:
    """Run the shops in a process. Raise `ChildProcessError` if the process failed.

    If the block raises, the process is killed.
    """
    command = (sys.executable, "-m", "tailrace.demo.shops", str(directory), str(rows))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
        if status := process.wait():
            raise ChildProcessError(f"the shops ended with status {status}")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    write_sales(Path(sys.argv[1]), int(sys.argv[2]))
