"""The calls of a handler that run, and those that took too long and were given up."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Final

from tailrace.delivery.outcome import CallOutcome, OutcomeKind
from tailrace.errors import Error
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.worker.calls import Call, CallSource, timed_out

STILL_RUNS: Final = CallOutcome(
    OutcomeKind.LATER, "not called: an earlier call of its key still runs"
)
"""The outcome of a message whose key is in a call that was given up."""

_log: Final = logging.getLogger("tailrace.subscription")


class RunningCalls:
    """The calls under way. Any thread may use it, except with the lock of the `source`.

    A call that takes longer than `timeout_s` and `grace_s` together is given up: it counts as a
    failed attempt, but cannot be ended. While it runs, no other message of its key is called in
    this process. If more than `given_up_max` of them run, the worker fails: only a new process ends
    them. `name` is that of the subscription.
    """

    def __init__(
        self,
        name: str,
        source: CallSource,
        *,
        timeout_s: float,
        grace_s: float,
        given_up_max: int,
        monotonic: Callable[[], float],
    ) -> None:
        self._name = name
        self._source = source
        self._timeout_s = timeout_s
        self._limit_s = timeout_s + grace_s
        self._given_up_max = given_up_max
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._deadlines: dict[Call, float] = {}
        self._began: dict[Call, float] = {}
        self._given_up: dict[Call, list[bytes | Origin]] = {}

    def begin(self, call: Call) -> bool:
        """Record that a call begins. False if it must not: its key is in another one."""
        with self._mutex:
            if self._given_up and not self._late_names.isdisjoint(call.names):
                return False
            now = self._began[call] = self._monotonic()
            self._deadlines[call] = now + self._limit_s
            return True

    def end(self, call: Call) -> bool:
        """Record that a call has ended. False if it was given up before."""
        with self._mutex:
            if self._given_up.pop(call, None) is not None:
                self._source.runs_late(self._late_by_shard)
            if self._deadlines.pop(call, None) is None:
                return False
            began = self._began.pop(call)
        self._source.took(self._monotonic() - began)
        return True

    def give_up(self) -> bool:
        """Give up the calls that take too long. False if there is none."""
        late = self._pop_late()
        for call in late:
            _log.error(
                "%s: the call of %s takes longer than %g s and cannot be ended",
                self._name,
                call.label,
                self._timeout_s,
            )
            self._source.ended(call, timed_out(self._timeout_s))
        if self.given_up > self._given_up_max:
            self._source.fail(self._too_many())
        return bool(late)

    def _too_many(self) -> Error:
        return Error(
            f"subscription {self._name}: {self.given_up:,} calls of its handler take longer than"
            f" {self._timeout_s:g} s and do not end; a worker has room for {self._given_up_max:,}",
            "restart the process, and have the handler end: give its clients timeouts",
        )

    def _pop_late(self) -> list[Call]:
        now = self._monotonic()
        with self._mutex:
            past = [call for call, deadline in self._deadlines.items() if deadline <= now]
            late = [call for call in past if call.end.give_up()]
            for call in past:
                del self._deadlines[call]
                self._deadlines[call] = now + self._limit_s  # its commit is under way
            for call in late:
                del self._deadlines[call]
                self._given_up[call] = call.names
                self._source.took(now - self._began.pop(call))
            if late:
                self._source.runs_late(self._late_by_shard)
        return late

    @property
    def _late_by_shard(self) -> Counter[str]:
        return Counter(call.owned.name for call in self._given_up)

    @property
    def _late_names(self) -> set[bytes | Origin]:
        return {name for names in self._given_up.values() for name in names}

    @property
    def next_deadline(self) -> float:
        """When the next call has taken too long; infinity if none runs."""
        with self._mutex:
            return next(iter(self._deadlines.values()), inf)

    @property
    def given_up(self) -> int:
        """The number of calls that were given up and still run."""
        return len(self._given_up)
