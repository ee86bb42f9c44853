"""The log of the messages that became dead letters."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.queues import Queue

_log: Final = logging.getLogger("tailrace.subscription")


def log_dead_letters(subscription: str, commit: ShardCommit) -> None:
    """Log the messages that a commit made dead letters, without those that follow them."""
    for move in commit.moves:
        if move.target is Queue.DLQ and move.attempts is not None:
            told = subscription, move.origin, move.error, move.origin
            _log.error("%s: %s is a dead letter now: %s; tailrace explain %s", *told)
