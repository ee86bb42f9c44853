"""Calls of every operation on queues, for a hub with the queue ``jobs``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tailrace.operations.queue import accounting, changes, checks, create, describe, replay
from tailrace.queue.replay.lifecycle import NewReplay, create_replay
from tests.support.pipelines.lake import Lake

NAME: Final = "jobs"


def interrupted(operator: Lake) -> str:
    """Return a replay on which nobody works."""
    backend, new = operator.hub.backend, NewReplay(0, 1 << 45, False, "operator", "again")
    return create_replay(backend, NAME, new, 0).id


def observe(running: object) -> bool:
    """Let a replay go on."""
    return True


QUEUES: Final[dict[Callable[..., Any], Callable[[Lake], Any]]] = {
    accounting.read_accounts: lambda o: accounting.read_accounts(o.hub, NAME),
    changes.pause: lambda o: changes.pause(o.hub, NAME, "a test", drain=True),
    changes.play: lambda o: changes.play(o.hub, NAME),
    changes.rebalance: lambda o: changes.rebalance(o.hub, NAME, timeout="1s"),
    changes.plan_delete: lambda o: changes.plan_delete(o.hub, NAME),
    changes.delete: lambda o: changes.delete(o.hub, NAME),
    checks.check_accounts: lambda o: list(checks.check_accounts(o.hub, NAME)),
    checks.check_replays: lambda o: list(checks.check_replays(o.hub, NAME)),
    create.create_queue: lambda o: create.create_queue(o.hub, "emails", attempts="3"),
    describe.list_queues: lambda o: describe.list_queues(o.hub),
    replay.begin_replay: lambda o: replay.begin_replay(
        o.hub, NAME, start="2026-01-31T08:00Z", end=None, id=None, handler=None, observe=observe
    ),
    replay.resume_replay: lambda o: replay.resume_replay(
        o.hub, NAME, interrupted(o), handler=None, observe=observe
    ),
    replay.cancel_replay: lambda o: replay.cancel_replay(o.hub, NAME, interrupted(o)),
    replay.list_replays: lambda o: replay.list_replays(o.hub, NAME),
    describe.show_stats: lambda o: describe.show_stats(o.hub, NAME),
}
"""An operation, and a call of it."""
