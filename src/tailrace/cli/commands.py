"""The commands of the root and their modules, and the hub in suggested commands."""

from __future__ import annotations

import re
import shlex
from typing import Final

COMMANDS: Final = {
    "topic": "tailrace.cli.topic.topic",
    "queue": "tailrace.cli.queue.queue",
    "push": "tailrace.cli.topic.push",
    "tail": "tailrace.cli.topic.tail",
    "run": "tailrace.cli.app.run",
    "status": "tailrace.cli.status",
    "lag": "tailrace.cli.lag",
    "explain": "tailrace.cli.explain",
    "group": "tailrace.cli.group.group",
    "subscription": "tailrace.cli.subscription.subscription",
    "source": "tailrace.cli.source.source",
    "pipeline": "tailrace.cli.pipeline.pipeline",
    "dlq": "tailrace.cli.dead_letters.dlq",
    "audit": "tailrace.cli.audit",
    "reader": "tailrace.cli.pipeline.reader",
    "writer": "tailrace.cli.pipeline.writer",
    "segment": "tailrace.cli.segment",
    "hub": "tailrace.cli.hub",
    "config": "tailrace.cli.config",
    "bench": "tailrace.cli.bench",
    "demo": "tailrace.cli.demo",
    "completion": "tailrace.cli.completion",
    "version": "tailrace.cli.version",
}

ALIASES: Final = {"sub": "subscription"}
"""Other names of commands."""

_WITHOUT_HUB: Final = {"reader", "writer", "demo", "completion", "version"}

_SUGGESTED: Final = re.compile(
    rf"\btailrace (?=(?:{'|'.join(name for name in COMMANDS if name not in _WITHOUT_HUB)})\b)"
)
"""The beginning of a command that uses a hub and does not name one."""


def name_hub(text: str, hub: str) -> str:
    """Return a text in which every suggested command names the hub, quoted for the shell.

    A command that names a hub, ``tailrace --hub ./data status``, stays as it is.
    """
    option = f"tailrace --hub {shlex.quote(hub)} "
    return _SUGGESTED.sub(lambda _: option, text)
