"""A consumer of a group: what it was granted, and whose turn it is.

The runtime tells a session what it is granted and what to let go of, and is answered with facts.
The backend is asked in the consumer's own thread, in the runtime's progress thread (`save`), or in
the thread of a user who waits for an acknowledgement; never in a call that may not block.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import BackendUnavailable, DeliveryFailed, HubClosed
from tailrace.group import members
from tailrace.group.delivery import Delivery
from tailrace.group.events import Died, Drained, Event, Subscribed, Unsubscribed
from tailrace.group.failed import note_failed
from tailrace.group.holding import Holding
from tailrace.group.offer import Counts, Offer
from tailrace.group.owned import Owned
from tailrace.group.share import Share, Terms
from tailrace.group.taking_part import Runtime
from tailrace.group.tending import Tending
from tailrace.message import Message, Partition

TURN_S: Final = 0.01
"""How long one unit is handed out before the next one has its turn."""
_IDLE_S: Final = 60.0
_PAUSED_S: Final = 0.05
_LEAVE_S: Final = 2.0
_FINISH_S: Final = 0.8


class Session:
    """One subscription of one consumer to a group. One thread at a time calls `next` and `take`."""

    def __init__(
        self,
        backend: Backend,
        group: str,
        *,
        name: str,
        terms: Terms,
        clock: Clock,
        decoder: Callable[[str], Callable[[Message[Any]], Any]],
    ) -> None:
        self.id = name
        self.group = group
        self.share = Share(
            backend,
            group,
            session=name,
            terms=terms,
            clock=clock,
            decoder=decoder,
            tell=self._tell,
            acked=self._note_progress,
        )
        self._runtime: Runtime | None = None
        self._rota = self.share.rota
        self._tending = Tending(self.share, lambda ends: self._runs().await_records(self.id, ends))
        self._stopping = self._departed = False
        self._error: BaseException | None = None
        self._turned: Owned | None = None
        self._paused = self._due = False

    def install(self, unit: str, epoch: int) -> None:
        """The unit is ours."""
        with self.share.lock:
            self._rota.add(Owned(self.share, unit, epoch))
            self.share.news()

    def drain(self, unit: str, epoch: int) -> None:
        """The unit is to be finished: answered by `Drained` once nothing of it is in hand."""
        with self.share.lock:
            owned = self._rota.find(unit, epoch)
            if owned is not None:
                owned.drain()
                self._rota.unsaved.add(owned)
                self.share.stir(owned)
                self.share.news()
        if owned is None:
            self._tell(Drained(self.id, unit, epoch, 0))
        else:
            self._runs().save_soon(self.id)

    def drop(self, unit: str, epoch: int) -> None:
        """The unit is no longer ours: nothing more is committed for it."""
        with self.share.lock:
            self._rota.remove(self._rota.find(unit, epoch))
            self.share.news()

    def departed(self) -> None:
        """The leader knows that we are gone."""
        with self.share.lock:
            self._departed = True
            self.share.news()

    def wake(self, partitions: Iterable[Partition]) -> None:
        """There is more to read of these."""
        with self.share.lock:
            for partition in partitions:
                owned = self._rota.units.get(str(partition))
                if owned is not None:
                    owned.wake()
            self.share.news()

    def fail(self, error: BaseException) -> None:
        """The runtime is no more: `next` raises this."""
        with self.share.lock:
            self._error = error
            self.share.news()

    def save(self) -> None:
        """Commit all acknowledgements. What the backend did not do is tried again later."""
        with self.share.lock:
            self._due = False
        with contextlib.suppress(HubClosed):
            if not self.commit():
                self._note_progress()

    def start(self, join: Callable[[Session], Runtime]) -> None:
        """Take part in the group."""
        self._runtime = join(self)
        self._tell(Subscribed(self.id, self.group, self.share.terms.revoke_timeout_s))

    def next(
        self, timeout_s: float | None = None, abandoned: threading.Event | None = None
    ) -> Owned | None:
        """A unit with something to hand out, up to `share.limit`; None when there was none in time,
        after `stop`, or once it is abandoned.

        Raises `DeliveryFailed` for a delivery that used up its attempts, and what makes a unit
        unreadable, once each; the other keys and units go on.
        """
        share = self.share
        deadline = None if timeout_s is None else share.clock.monotonic() + timeout_s
        self._end_turn()
        while True:
            with share.lock:
                if self._error is not None:
                    raise self._error
                if self._stopping or (abandoned is not None and abandoned.is_set()):
                    return None
                failed = self._next_failure() if share.failing else None
                share.failing = failed is not None
                seen = share.version
                self._rota.ring(share.clock.monotonic())
            if failed is not None:
                note_failed(share.backend, self.group, self.id, failed, share.clock.now_ms())
                raise failed
            self._tending.end()
            until = self._runs().until(self.id)
            self._paused = until <= share.clock.monotonic()
            with share.lock:
                owned = None if self._paused else self._rota.pick()
            if owned is None:
                if not self._sleep(seen, deadline):
                    return None
            elif self._tending.visit(owned) and self._begin_turn(owned, until):
                return owned

    def take(self, owned: Owned) -> Offer | None:
        """One delivery of a unit whose deliveries are not plain; None when its turn is over."""
        with self.share.lock:
            now = self.share.clock.monotonic()
            if now >= self.share.limit or owned.gone or owned.holding is None:
                return None
            return owned.holding.take(now)

    def commit(self) -> bool:
        """Commit all acknowledgements that can be, now; whether that was all."""
        with self.share.lock:
            turned = self._turned
            if turned is not None and not turned.gone:  # it acknowledges without a word
                self._rota.unsaved.add(turned)
        return self._tending.save()

    def stop(self) -> None:
        """End what `next` waits for. Any thread, also in a signal handler."""
        with self.share.lock:
            self._stopping = True
            self.share.news()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    @property
    def idle(self) -> bool:
        """Whether there is nothing to hand out, as far as is known."""
        with self.share.lock:
            return self._rota.idle

    @property
    def blocked(self) -> set[Partition]:
        """The partitions that cannot go on, as the loop was told."""
        with self.share.lock:
            return {owned.partition for owned in self._rota.units.values() if owned.blocked}

    def rouse(self) -> None:
        """Have a `next` that waits look again. Any thread."""
        with self.share.lock:
            self.share.news()

    def leave(self, *, release: bool) -> None:
        """Leave the group, with everything that was done durable, unless that cannot be had within
        two seconds, and the time that a commit under way waits for the backend.

        What is in hand is given up: at once with `release`, else when nobody acknowledges it soon.
        """
        runtime, share = self._runs(), self.share
        now = share.clock.monotonic()
        give_up, deadline = now if release else now + _FINISH_S, now + _LEAVE_S
        self._end_turn()
        runtime.tell(Unsubscribed(self.id))
        try:
            while not self._departed and self._error is None and now < deadline:
                with share.lock:
                    seen, now = share.version, share.clock.monotonic()
                    self._rota.ring(now)
                    if now >= give_up:
                        self._rota.release()
                        give_up = deadline
                self._tending.end()
                self._sleep(seen, give_up)
        except HubClosed:
            pass
        finally:
            self._depart()

    def _depart(self) -> None:
        """Be gone, in whatever state things are."""
        runtime, share = self._runs(), self.share
        if not self._departed:
            runtime.tell(Died(self.id))
        with share.lock:
            for owned in list(self._rota.units.values()):
                self._rota.remove(owned)
        with contextlib.suppress(BackendUnavailable):
            members.leave(share.backend, self.group, self.id)
        runtime.leave(self.id)

    @property
    def holdings(self) -> dict[Partition, Holding]:
        """The units whose ledgers were read. With the lock of `share`."""
        return self._rota.holdings

    @property
    def counts(self) -> Counts:
        """What was handed out, acknowledged and given back by this session."""
        with self.share.lock:
            return self._rota.counts

    def _begin_turn(self, owned: Owned, until: float) -> bool:
        """Have a unit handed out for a while; False when it was lost, or all is over meanwhile."""
        share = self.share
        with share.lock:
            if owned.gone or self._stopping or self._error is not None:
                return False
            self._turned = owned
            share.limit = min(until, share.clock.monotonic() + TURN_S)
        self._note_progress()
        return True

    def _end_turn(self) -> None:
        """Put the unit that had its turn where it belongs now."""
        with self.share.lock:
            owned, self._turned = self._turned, None
            if owned is None or owned.holding is None or owned.gone:
                return
            owned.holding.let_go()
            self._rota.unsaved.add(owned)
            self._rota.put(owned)
            self._rota.stir(owned)
        self._note_progress()

    def _sleep(self, seen: int, deadline: float | None) -> bool:
        """Wait for news, or until something is due; False when the time is over."""
        share = self.share
        with share.lock:
            now = share.clock.monotonic()
            times = [now + _IDLE_S if deadline is None else deadline, self._rota.alarm_at]
            if self._paused and self._rota.units:
                times.append(now + _PAUSED_S)
            share.lock.wait_for(lambda: share.version != seen, max(0.0, min(times) - now))
        return deadline is None or share.clock.monotonic() < deadline

    def _next_failure(self) -> DeliveryFailed | None:
        for holding in self.holdings.values():
            if holding.failures:
                return DeliveryFailed(Delivery.failed(*holding.failures.popleft()))
        return None

    def _note_progress(self) -> None:
        if not self._due:
            self._due = True
            self._runs().progress_due(self.id)

    def _tell(self, event: Event) -> None:
        self._runs().tell(event)

    def _runs(self) -> Runtime:
        assert self._runtime is not None, "a session is started before it is used"
        return self._runtime
