"""The checks of a queue for `tailrace status`: that every message is accounted for, and that
somebody works on its replays."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.amount import format_amount
from tailrace.errors import UnknownReplay
from tailrace.hub.hub import Hub
from tailrace.operations.problem import Problem
from tailrace.operations.queue.accounting import difference_text, read_accounts
from tailrace.operations.queue.replay import resume_command
from tailrace.queue.replay.job import ReplayState, StoredReplay, stored_replays
from tailrace.queue.replay.lifecycle import peek_at
from tailrace.subscription.store.owners import workers


def check_accounts(hub: Hub, name: str) -> Iterator[Problem]:
    """Yield a problem if a queue is quiet and its counts do not add up."""
    accounts = read_accounts(hub, name)
    if accounts.conserved is False:
        what = f"NOT CONSERVED: {difference_text(accounts)}"
        yield Problem(f"queue {name}", what, f"tailrace queue stats {name} --shards")


def check_replays(hub: Hub, name: str) -> Iterator[Problem]:
    """Yield a problem for each replay of a queue that has messages left and no process that works
    on it."""
    for replay in stored_replays(hub.backend, name):
        if replay.job.state is ReplayState.RUNNING and (what := _unattended(hub, replay)):
            command = resume_command(name, replay.id, has_handler=replay.job.has_handler)
            yield Problem(f"queue {name}", what, command)


def _unattended(hub: Hub, replay: StoredReplay) -> str | None:
    if workers(hub.backend, replay.subscription, {}):
        return None
    try:
        progress = peek_at(hub.backend, replay.queue, replay.id)
    except UnknownReplay:  # it was removed since it was listed
        return None
    if progress.state is not ReplayState.RUNNING:
        return None
    left = format_amount(progress.left + progress.retrying, "message")
    return f"replay {replay.id} UNATTENDED: {left} left, no process works on it"
