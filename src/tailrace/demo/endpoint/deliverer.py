"""One worker of the endpoint act, in its own process, which may be frozen at any instant."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Final

import tailrace

SUBSCRIPTION: Final = "crm"


def deliver(directory: Path, number: int) -> None:
    """Deliver to the endpoint of the subscription until SIGTERM. Log warnings to stderr."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    with (
        tailrace.open(directory, settings=tailrace.HubSettings()) as hub,
        hub.subscription(SUBSCRIPTION).start(id=f"worker-{number}") as worker,
    ):
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.wait()


if __name__ == "__main__":
    deliver(Path(sys.argv[1]), int(sys.argv[2]))
