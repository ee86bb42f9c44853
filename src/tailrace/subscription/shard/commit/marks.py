"""What a commit stores about calls: before a message is called, so that a later owner knows of the
call; and before nothing is called any more, so that it need not wonder."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.message import Partition
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.calls import Calls
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.commit.counts import ShardCounts
from tailrace.subscription.shard.intake import Intake
from tailrace.subscription.shard.lag import KeyLag
from tailrace.subscription.shard.options import Acking, ShardOptions
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.turn import NO_ATTEMPTS, Turn


def mark_calls(
    ready: ShardCommit,
    options: ShardOptions,
    worker: str,
    *,
    calls: Calls,
    lag: KeyLag,
    intake: Intake,
) -> None:
    """Let a commit permit the calls that wait for it. Those that are to be acknowledged before wait
    on.

    With those of messages that follow them, as far as there is room: at most `calls_ahead` permits
    are stored beside those of calls under way and of suspects.
    """
    turns = calls.pop_unmarked()
    if options.acking is Acking.BEFORE_CALL:
        calls.unmarked = [turn for turn in turns if turn.queue is not Queue.DLQ]
        turns = [turn for turn in turns if turn.queue is Queue.DLQ]
    for turn in turns:
        if turn.alone or turn.queue is not Queue.MQ:
            ready.attempts[turn.known_origin] = turn.mark(worker)
    ready.marked += turns
    marked = [turn for turn in ready.marked if _needs_permit(turn)]
    permitted = [turn for turn in calls.permitted if turn.queue is Queue.MQ]
    under_way = [turn for turn in calls.under_way if turn.queue is Queue.MQ]
    room = max(0, options.calls_ahead - len(marked) - len(permitted))
    taken: dict[Partition, set[int]] = {}
    for turn in (*under_way, *permitted, *marked):
        for partition, offsets in lag.offsets(turn, 0):
            taken.setdefault(partition, set()).update(offsets)
    revoked = intake.revoke(taken, room)
    followers = (room - intake.permitted_followers) // max(1, len(marked))
    ready.permits = {partition: [] for partition in (*ready.permits, *revoked)}
    for turn in marked:
        for partition, offsets in lag.offsets(turn, followers):
            ready.permits.setdefault(partition, []).extend(offsets)
    ready.permitted = intake.permits(ready.permits)


def _needs_permit(turn: Turn) -> bool:
    return turn.queue is Queue.MQ and not (turn.alone or turn.early)


def acknowledge_calls(
    ready: ShardCommit, calls: Calls, *, lag: KeyLag, book: AttemptBook, counts: ShardCounts
) -> None:
    """Let a commit acknowledge the messages that wait for it before their calls: none is called
    twice.

    A dead letter that an operator redelivers is acknowledged after its call. While it is called
    alone, nothing is acknowledged.
    """
    if calls.alone is not None and calls.alone.queue is Queue.DLQ:
        return
    turns = calls.pop_unmarked()
    calls.unmarked += [turn for turn in turns if turn.queue is Queue.DLQ]
    early = [turn for turn in turns if turn.queue is not Queue.DLQ]
    for turn in early:
        turn.early = True
        partition, offset = lag.place(turn)
        ready.ack(partition, offset, offset + 1)
        if turn.queue is not Queue.MQ or turn.known_origin in book:
            ready.attempts[turn.known_origin] = NO_ATTEMPTS
            book.remove(turn.known_origin)
    counts.early += len(early)
    counts.acked += len(early)
    ready.marked += early


def unmark_calls(ready: ShardCommit, turns: Iterable[Turn], intake: Intake) -> None:
    """Let a commit remove what only an unclean end leaves behind: these are not called."""
    for turn in turns:
        if turn.alone or turn.queue is not Queue.MQ:
            ready.attempts[turn.known_origin] = turn.unmarked
    ready.permitted = intake.final_permits(ready.permits)


def quiesce(ready: ShardCommit, calls: Calls, intake: Intake) -> None:
    """Let a commit say that nothing is in flight: all calls need another one before."""
    unmark_calls(ready, (*calls.permitted, *ready.marked), intake)
    calls.unmark(ready.marked)
    ready.marked = []
    ready.quiet = True
