"""What a session does for its units with the backend, and what becomes of one if that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from tailrace.errors import BackendUnavailable, Error, Fenced, HubClosed, UnknownTopic
from tailrace.group.owned import Need, Owned
from tailrace.group.share import Share
from tailrace.message import Partition

COMMITS_AT_ONCE: Final = 16
_REST_S: Final = 0.2


class Tending:
    """Tends the units of a session. `visit` is for the consumer's thread, the rest for any.

    `await_records` is given the ends of partitions that are to be watched.
    """

    def __init__(
        self, share: Share, await_records: Callable[[Mapping[Partition, int]], None]
    ) -> None:
        self._share = share
        self._await_records = await_records
        self._saving = threading.Lock()

    def visit(self, owned: Owned) -> bool:
        """Whether a unit of the round has something to hand out, read and allowed for if need be.

        If not, it has left the round, or waits there until there is room for what it would read.
        Raises what makes the unit unreadable, once.
        """
        share = self._share
        actions = {
            Need.LEDGER: owned.load,
            Need.COMMIT: owned.commit,
            Need.READ: owned.read,
        }
        while True:
            with share.lock:
                now = share.clock.monotonic()
                need = owned.need(now)
                if need is Need.NOTHING:
                    if owned.holding is not None:
                        owned.holding.let_go()
                    share.rota.retire(owned, now)
                    break
                share.rota.put(owned)
                if need is Need.TURN:
                    return True
                if need is Need.READ and not share.rota.room:
                    return False
            try:
                self._try(owned, actions[need])
            except HubClosed:
                raise
            except Error:
                owned.stuck = True
                raise
        owned.warn_if_full()
        self._watch(owned)
        return False

    def end(self) -> None:
        """Make the final progress durable of those units that have come to it."""
        share = self._share
        with share.lock:
            ending = share.rota.take_ending(share.clock.monotonic())
        self._commit_all(ending)

    def save(self) -> bool:
        """Commit what was acknowledged; whether that was all. The rest is to be done again."""
        share = self._share
        with self._saving:  # so that whoever comes second knows that it was done
            with share.lock:
                units = share.rota.take_unsaved()
            try:
                return self._commit_all(units)
            except BaseException:
                with share.lock:
                    share.rota.unsaved |= units
                raise

    def _commit_all(self, units: Collection[Owned]) -> bool:
        """Commit for these units; whether all of it was done.

        Each has a fence and so a transaction of its own: many are put in side by side, for the
        backend to sync them together.
        """
        if len(units) < COMMITS_AT_ONCE:
            done = [self._commit(owned) for owned in units]
            return all(done)
        begun: list[Future[bool]] = []
        with ThreadPoolExecutor(COMMITS_AT_ONCE, "tailrace commits") as pool:
            for owned in units:
                try:
                    begun.append(pool.submit(self._commit, owned))
                except RuntimeError:  # the interpreter is ending, and begins no thread any more
                    break
        done = [future.result() for future in begun]
        done += [self._commit(owned) for owned in list(units)[len(begun) :]]
        return all(done)

    def _commit(self, owned: Owned) -> bool:
        return self._try(owned, owned.load) and self._try(owned, owned.commit)

    def _watch(self, owned: Owned) -> None:
        """Have a unit watched over that is read to the end, and look once more after that."""
        with self._share.lock:
            at, stopped = owned.watch(), owned.stopped
        if at is None:
            return
        if not stopped:
            self._await_records({owned.partition: at})
        if not self._try(owned, owned.look):
            with self._share.lock:
                owned.unwatch()

    def _try(self, owned: Owned, action: Callable[[], None]) -> bool:
        """Do it; False when it could not be done: the unit is lost, or rests for a while."""
        share = self._share
        try:
            action()
        except (Fenced, UnknownTopic):
            owned.lose()
            with share.lock:
                share.rota.remove(owned)
            return False
        except HubClosed:
            raise
        except BackendUnavailable as error:
            share.trouble.failed(error)
            with share.lock:
                now = share.clock.monotonic()
                owned.rests_until = now + _REST_S
                share.rota.retire(owned, now)
                if not owned.gone:
                    share.rota.unsaved.add(owned)
            return False
        return True
