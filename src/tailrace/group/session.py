"""A consumer of a group: what it was granted, and whose turn it is.

The runtime tells a session what it is granted and what to let go of, and is answered with facts.
The backend is asked in the consumer's own thread, in the runtime's progress thread (`save`), or in
the thread of a user who waits for an acknowledgement; never in a call that may not block.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import (
    BackendUnavailable,
    DeliveryFailed,
    Error,
    Fenced,
    HubClosed,
    UnknownTopic,
)
from tailrace.group import members
from tailrace.group.events import Died, Drained, Event, Subscribed, Unsubscribed
from tailrace.group.holding import Counts, Holding, Offer
from tailrace.group.owned import Owned, Share, Terms
from tailrace.group.taking_part import Runtime
from tailrace.message import Message, Partition, Position

TURN_S: Final = 0.01
"""How long one unit is handed out before the next one has its turn."""
_IDLE_S: Final = 60.0
_PAUSED_S: Final = 0.05
_REST_S: Final = 0.2
_DUE_S: Final = 0.001
_LEAVE_S: Final = 2.0
_FINISH_S: Final = 0.8
_COMMITS_AT_ONCE: Final = 16


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
        self._units: dict[str, Owned] = {}
        self._round: deque[Owned] = deque()
        self._awaited: dict[Partition, int] = {}
        self._stopping = False
        self._departed = False
        self._error: BaseException | None = None
        self._turned = self._paused = False
        self._due = False
        self._past = Counts(0, 0, 0)

    def install(self, unit: str, epoch: int) -> None:
        """The unit is ours."""
        share = self.share
        with share.lock:
            self._remove(self._units.get(unit))
            owned = self._units[unit] = Owned(share, unit, epoch)
            self._round.append(owned)
            share.prefetch_bytes = share.terms.prefetch_bytes // len(self._units)
            share.news()

    def drain(self, unit: str, epoch: int) -> None:
        """The unit is to be finished: answered by `Drained` once nothing of it is in hand."""
        with self.share.lock:
            owned = self._find(unit, epoch)
            if owned is not None:
                owned.drain()
                self.share.news()
        if owned is None:
            self._tell(Drained(self.id, unit, epoch, 0))
        else:
            self._runs().save_soon(self.id)

    def drop(self, unit: str, epoch: int) -> None:
        """The unit is no longer ours: nothing more is committed for it."""
        with self.share.lock:
            self._remove(self._find(unit, epoch))
            self.share.news()

    def departed(self) -> None:
        """The leader knows that we are gone."""
        with self.share.lock:
            self._departed = True
            self.share.news()

    def wake(self, partitions: Iterable[Partition] = ()) -> None:
        """There is more to read of these; without any, look at all."""
        chosen = set(partitions)
        with self.share.lock:
            for owned in self._units.values():
                if not chosen or owned.partition in chosen:
                    owned.dry = False
            self._awaited = {}
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
            units = list(self._units.values())
        with contextlib.suppress(HubClosed):
            loaded = [owned for owned in units if self._try(owned, owned.load)]
            if not self._commit_all(loaded) or len(loaded) < len(units):
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
        if self._turned:
            self._turned = False
            self._note_progress()
        while True:
            with share.lock:
                if self._error is not None:
                    raise self._error
                if self._stopping or (abandoned is not None and abandoned.is_set()):
                    return None
                self._raise_failure()
                seen = share.version
            self._attend()
            owned = self._turn()
            if owned is not None:
                return owned
            if not self._sleep(seen, deadline):
                return None

    def take(self, owned: Owned) -> Offer | None:
        """One delivery of a unit whose deliveries are not plain; None when its turn is over."""
        with self.share.lock:
            now = self.share.clock.monotonic()
            if now >= self.share.limit or owned.gone or owned.holding is None:
                return None
            return owned.holding.take(now)

    def commit(self) -> None:
        """Commit all acknowledgements that can be, now."""
        self._commit_all(list(self._units.values()))

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
            return all(owned.quiet or owned.blocked for owned in self._units.values())

    @property
    def blocked(self) -> set[Partition]:
        """The partitions that cannot go on, as the loop was told."""
        with self.share.lock:
            return {owned.partition for owned in self._units.values() if owned.blocked}

    def rouse(self) -> None:
        """Have a `next` that waits look again. Any thread."""
        with self.share.lock:
            self.share.news()

    def leave(self, *, release: bool) -> None:
        """Leave the group, with everything that was done durable. Takes two seconds at most.

        What is in hand is given up: at once with `release`, else when nobody acknowledges it soon.
        """
        runtime, share = self._runs(), self.share
        now = share.clock.monotonic()
        give_up, deadline = now if release else now + _FINISH_S, now + _LEAVE_S
        runtime.tell(Unsubscribed(self.id))
        with contextlib.suppress(HubClosed):
            while not self._departed and self._error is None and now < deadline:
                with share.lock:
                    seen, now = share.version, share.clock.monotonic()
                    if now >= give_up:
                        self._release()
                self._attend()
                self._sleep(seen, deadline if now >= give_up else give_up)
        if not self._departed:
            runtime.tell(Died(self.id))
        with share.lock:
            for owned in list(self._units.values()):
                self._remove(owned)
        with contextlib.suppress(BackendUnavailable):
            members.leave(share.backend, self.group, self.id)
        runtime.leave(self.id)

    @property
    def holdings(self) -> dict[Partition, Holding]:
        """The units whose ledgers were read. With the lock of `share`."""
        units = self._units.values()
        return {owned.partition: owned.holding for owned in units if owned.holding is not None}

    @property
    def counts(self) -> Counts:
        """What was handed out, acknowledged and given back by this session."""
        with self.share.lock:
            here = [holding.counts for holding in self.holdings.values()]
            return Counts(*map(sum, zip(self._past, *here, strict=True)))

    def _attend(self) -> None:
        """Read the ledgers of what is new, and finish what is to be finished."""
        with self.share.lock:
            now = self.share.clock.monotonic()
            units = [owned for owned in self._units.values() if not owned.rests(now)]
            new = [owned for owned in units if owned.holding is None]
        for owned in new:
            self._try(owned, owned.load)
        with self.share.lock:
            ending = [owned for owned in units if owned.ends]
        self._commit_all(ending)

    def _commit_all(self, units: list[Owned]) -> bool:
        """Commit for these units; whether all of it was done.

        Each has a fence and so a transaction of its own: many are put in side by side, for the
        backend to sync them together.
        """
        if len(units) < _COMMITS_AT_ONCE:
            done = [self._try(owned, owned.commit) for owned in units]
        else:
            with ThreadPoolExecutor(_COMMITS_AT_ONCE, "tailrace commits") as pool:
                done = list(pool.map(lambda owned: self._try(owned, owned.commit), units))
        return all(done)

    def _turn(self) -> Owned | None:
        """The next unit that has something to hand out, if we may."""
        share = self.share
        until = self._runs().until(self.id)
        now = share.clock.monotonic()
        self._paused = until <= now
        if self._paused:
            return None
        found = None
        for owned in list(self._round):
            if not owned.quiet and not owned.rests(now) and self._has_next(owned):
                found = owned
                break
        self._watch()
        with share.lock:
            if found is None or found.gone:
                return None
            self._round.remove(found)
            self._round.append(found)
            self._turned = True
            share.limit = min(until, share.clock.monotonic() + TURN_S)
        return found

    def _has_next(self, owned: Owned) -> bool:
        try:
            return self._try(owned, owned.next)
        except HubClosed:
            raise
        except Error:
            owned.stuck = True
            raise

    def _watch(self) -> None:
        """Have the runtime watch over what is read to the end, and look once more after that."""
        with self.share.lock:
            dry = [owned for owned in self._units.values() if owned.awaits]
            ends = {o.partition: o.holding.read_from for o in dry if o.holding is not None}
            new = [o for o in dry if self._awaited.get(o.partition) != ends.get(o.partition)]
            changed = ends != self._awaited
            self._awaited = ends
        if changed:
            self._runs().await_records(self.id, ends)
        for owned in new:
            self._try(owned, owned.look)

    def _try(self, owned: Owned, action: Callable[[], object]) -> bool:
        """Do it; False when it said so, or could not: the unit is lost, or rests for a while."""
        try:
            return action() is not False
        except (Fenced, UnknownTopic):
            owned.lose()
            with self.share.lock:
                self._remove(owned)
        except HubClosed:
            raise
        except BackendUnavailable as error:
            self.share.trouble.failed(error)
            owned.rests_until = self.share.clock.monotonic() + _REST_S
        return False

    def _sleep(self, seen: int, deadline: float | None) -> bool:
        """Wait for news, or until something is due; False when the time is over."""
        share = self.share
        with share.lock:
            now = share.clock.monotonic()
            times = [now + _IDLE_S] if deadline is None else [deadline]
            if self._paused and self._units:
                times.append(now + _PAUSED_S)
            for owned in self._units.values():
                due = None if owned.holding is None or self._paused else owned.holding.due
                if owned.rests(now):
                    times.append(owned.rests_until)
                elif due is not None:
                    times.append(max(due, now + _DUE_S))
            share.lock.wait_for(lambda: share.version != seen, max(0.0, min(times) - now))
        return deadline is None or share.clock.monotonic() < deadline

    def _raise_failure(self) -> None:
        for partition, holding in self.holdings.items():
            if holding.failures:
                chunk, row, attempts = holding.failures.popleft()
                key = chunk.keys[row]
                position = Position(*partition, chunk.offsets[row])
                text = None if key is None else key.decode("utf-8", "backslashreplace")
                raise DeliveryFailed(str(position), text, attempts)

    def _release(self) -> None:
        for owned in self._units.values():
            if owned.holding is not None:
                owned.holding.release()

    def _find(self, unit: str, epoch: int) -> Owned | None:
        owned = self._units.get(unit)
        return owned if owned is not None and owned.epoch == epoch else None

    def _remove(self, owned: Owned | None) -> None:
        if owned is None or self._units.get(owned.name) is not owned:
            return
        owned.gone = True
        del self._units[owned.name]
        self._round.remove(owned)
        if owned.holding is not None:
            self._past = Counts(*map(sum, zip(self._past, owned.holding.counts, strict=True)))

    def _note_progress(self) -> None:
        if not self._due:
            self._due = True
            self._runs().progress_due(self.id)

    def _tell(self, event: Event) -> None:
        self._runs().tell(event)

    def _runs(self) -> Runtime:
        assert self._runtime is not None, "a session is started before it is used"
        return self._runtime
