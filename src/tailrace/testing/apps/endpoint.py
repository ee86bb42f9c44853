"""Simulated faults in front of a handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self

from tailrace.delivery.outcome import Reject
from tailrace.errors import InvalidValue
from tailrace.testing.arguments import check_count


class SimulatedFailure(Exception):
    """The error of a call that failed because a test wanted it to."""


class FaultKind(Enum):
    """What a fault does to a call."""

    FAILS = "the handler is not called, and the call fails"
    KILLS = "the worker dies before the handler is called"
    KILLS_AFTER_CALL = "the worker dies after the handler was called"


@dataclass(slots=True)
class SimulatedFault:
    """A fault that strikes `left` more calls of a key, or of any if that is None; without end if
    `left` is None. A call that fails has `error`."""

    kind: FaultKind
    error: Exception
    key: str | None
    left: int | None


class SimulatedEndpoint:
    """What a handler calls, as far as tests let it fail: a mail server, a bank.

    Faults strike in the order in which a test adds them, each `times` calls of `key`, or of any key
    without one; ``times=None`` is without end. Calls that no fault strikes reach the handler. Each
    method returns the endpoint, so that faults can be written one after the other::

        run.endpoint("mailer").fails(times=2).rejects("unknown address")
    """

    def __init__(self) -> None:
        self._faults: list[SimulatedFault] = []

    def fails(
        self, times: int | None = 1, *, error: Exception | None = None, key: str | None = None
    ) -> Self:
        """Let calls fail without reaching the handler, as if it had raised `error`."""
        chosen = SimulatedFailure("simulated by the test") if error is None else error
        if not isinstance(chosen, Exception):
            raise InvalidValue(
                "error", error, "an exception, for example TimeoutError('no answer')"
            )
        return self._add(FaultKind.FAILS, chosen, times, key)

    def rejects(
        self,
        reason: str = "simulated by the test",
        times: int | None = 1,
        *,
        key: str | None = None,
    ) -> Self:
        """Let calls be rejected without reaching the handler: the messages are dead letters."""
        return self.fails(times, error=Reject(reason), key=key)

    def kills_worker(self, times: int | None = 1, *, key: str | None = None) -> Self:
        """Let the worker die at the beginning of calls, before the handler is called.

        As a payload would that crashes its process. The worker starts again at once.
        """
        return self._add(FaultKind.KILLS, _died(), times, key)

    def kills_worker_after_call(self, times: int | None = 1, *, key: str | None = None) -> Self:
        """Let the worker die right after the handler was called, before anything is stored.

        The message is redelivered, so this shows if the handler may be called twice.
        """
        return self._add(FaultKind.KILLS_AFTER_CALL, _died(), times, key)

    def recovers(self) -> None:
        """End all faults."""
        self._faults.clear()

    def next_fault(self, key: str | None) -> SimulatedFault | None:
        """Return the fault that strikes a call of this key, and count it; None if none does."""
        for fault in self._faults:
            if fault.key in (None, key):
                if fault.left is not None:
                    fault.left -= 1
                    if not fault.left:
                        self._faults.remove(fault)
                return fault
        return None

    def _add(self, kind: FaultKind, error: Exception, times: int | None, key: str | None) -> Self:
        if times is not None:
            check_count("times", times)
        self._faults.append(SimulatedFault(kind, error, key, times))
        return self


def _died() -> SimulatedFailure:
    return SimulatedFailure("the worker died")
