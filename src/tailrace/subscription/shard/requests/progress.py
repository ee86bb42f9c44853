"""The outcomes of a request while its owner carries it out."""

from __future__ import annotations

from tailrace.subscription.shard.requests.request import LetterRequest
from tailrace.subscription.shard.requests.state import (
    FailedTarget,
    RequestState,
    TargetOutcome,
)


class RequestProgress:
    """The outcomes of one request so far."""

    __slots__ = ("_letters", "_outcomes", "failed", "request")

    def __init__(self, request: LetterRequest, state: RequestState | None) -> None:
        self.request = request
        opened = TargetOutcome.OPEN.value * len(request.targets)
        self._outcomes = bytearray((state.outcomes if state else opened).encode())
        self._letters = state.letters if state else 0
        self.failed = {each.target: each for each in state.failed} if state else {}
        """The targets that wait for another call, by index."""

    @property
    def open(self) -> list[int]:
        """The indexes of the targets without an outcome."""
        code = ord(TargetOutcome.OPEN.value)
        return [index for index, found in enumerate(self._outcomes) if found == code]

    def resolved(self, index: int) -> None:
        """Count a letter of a target that was redelivered or discarded."""
        self._letters += 1
        self.failed.pop(index, None)

    def fail(self, failed: FailedTarget) -> None:
        """Record that a target waits for another call."""
        self.failed[failed.target] = failed

    def end(self, index: int, outcome: TargetOutcome) -> None:
        """Decide what came of a target."""
        self._outcomes[index] = ord(outcome.value)
        self.failed.pop(index, None)

    @property
    def state(self) -> RequestState:
        """The state to store."""
        return RequestState(self._outcomes.decode(), self._letters, tuple(self.failed.values()))
