"""The three queues of a subscription, and where a message goes when its turn comes.

MQ is the topic itself, RQ has messages to be retried, DLQ has dead letters. A key *lags* in a queue
while that queue holds an unacknowledged message of it. A message is held back only by queues that
are older than the one it was read from: if its own queue counted, it would move in a circle.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from tailrace.errors import InvalidValue


class Queue(IntEnum):
    """The queues by age: messages of a key in DLQ are older than those in RQ, and so on."""

    DLQ = 0
    RQ = 1
    MQ = 2


class OnDeadLetter(Enum):
    """What a dead letter means for the later messages of its key."""

    BLOCK = "block"
    """They follow into DLQ, in order."""
    CONTINUE = "continue"
    """They are delivered without it."""

    @classmethod
    def parse(cls, text: object) -> OnDeadLetter:
        """Parse ``block`` or ``continue``; `InvalidValue` for anything else."""
        try:
            return cls(text)
        except ValueError:
            valid = ", ".join(each.value for each in cls)
            raise InvalidValue("on_dead_letter", text, valid) from None


class MessageRoute(Enum):
    """Where the first message of a key goes."""

    DELIVER = "deliver"
    TO_RQ = "append to RQ"
    TO_DLQ = "append to DLQ"


def route_of(
    queue: Queue, *, lags_in_rq: bool, lags_in_dlq: bool, policy: OnDeadLetter
) -> MessageRoute:
    """Return where a message goes that was read from a queue, given the lag of its key."""
    if queue is Queue.MQ and lags_in_rq:
        return MessageRoute.TO_RQ
    if queue is not Queue.DLQ and lags_in_dlq and policy is OnDeadLetter.BLOCK:
        return MessageRoute.TO_DLQ
    return MessageRoute.DELIVER
