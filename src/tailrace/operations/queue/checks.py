"""The checks of a queue for `tailrace status`: that every message is accounted for, and that
somebody works on its replays."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.amount import format_amount
from tailrace.errors import UnknownReplay
from tailrace.hub.hub import Hub
from tailrace.operations.problem import Problem
from tailrace.operations.queue.accounting import difference_text, read_accounts
from tailrace.operations.queue.replay import letters_command, resume_command
from tailrace.queue.replay.job import ReplayState, StoredReplay, stored_replays
from tailrace.queue.replay.lifecycle import peek_at
from tailrace.queue.replay.progress import ReplayProgress
from tailrace.subscription.store.owners import workers


def check_accounts(hub: Hub, name: str) -> Iterator[Problem]:
    """Yield a problem if a queue is quiet and its counts do not add up."""
    accounts = read_accounts(hub, name)
    if accounts.conserved is False:
        what = f"NOT CONSERVED: {difference_text(accounts)}"
        yield Problem(f"queue {name}", what, f"tailrace queue stats {name} --shards")


def check_replays(hub: Hub, name: str) -> Iterator[Problem]:
    """Yield a problem for each replay of a queue that has work left and no process for it, and for
    each one with dead letters."""
    for replay in stored_replays(hub.backend, name):
        if replay.job.state is not ReplayState.RUNNING and not replay.job.counts.dead:
            continue
        try:
            progress = peek_at(hub.backend, name, replay.id)
        except UnknownReplay:  # it was removed since it was listed
            continue
        yield from (
            Problem(f"queue {name}", f"replay {replay.id}{what}", command)
            for what, command in _problems(hub, replay, progress)
        )


def _problems(
    hub: Hub, replay: StoredReplay, progress: ReplayProgress
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a replay, and the command for it."""
    running = progress.state is ReplayState.RUNNING
    if running and not workers(hub.backend, replay.subscription, {}):
        count = progress.left + progress.retrying
        left = f"{format_amount(count, 'message')} left" if count else "a request for dead letters"
        command = resume_command(replay.queue, replay.id, has_handler=replay.job.has_handler)
        yield f" UNATTENDED: {left}, no process works on it", command
    if progress.dead:
        dead = format_amount(progress.dead, "pending dead letter")
        yield f": {dead}", letters_command(replay.queue, replay.id)
