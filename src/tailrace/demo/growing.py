"""The shops of the demo, in a process of their own: each appends its sales to a file.

They know nothing of who reads the files. What is in a file may end anywhere, in the middle of a
line too, as it does with every program that writes through a buffer.
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
"""How long the shops are open."""


def grow(directory: Path, rows: int) -> None:
    """Write all sales, a little at a time."""
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
def growing(directory: Path, rows: int) -> Iterator[None]:
    """Let the shops work in a process; `ChildProcessError` if they did not end well.

    If the block ends by an error, they are ended too.
    """
    command = (sys.executable, "-m", "tailrace.demo.growing", str(directory), str(rows))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
        if status := process.wait():
            raise ChildProcessError(f"the shops ended with status {status}")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    grow(Path(sys.argv[1]), int(sys.argv[2]))
