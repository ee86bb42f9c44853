"""The I/O of a session for its units, and what follows when it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from tailrace.amount import format_amount
from tailrace.errors import BackendUnavailable, Error, Fenced, HubClosed, UnknownTopic
from tailrace.group.session.owned_unit import UnitStep
from tailrace.group.session.session_unit import SessionUnit
from tailrace.group.session.state import SessionState
from tailrace.message import Partition

COMMITS_AT_ONCE: Final = 16

_log: Final = logging.getLogger("tailrace.group")


class UnitIO:
    """Does what the machine of a session asks for. `visit` is for the consumer's thread, the other
    methods for any.

    `await_records` is called with the partitions to watch, and the offsets to watch them from.
    """

    def __init__(
        self, state: SessionState, await_records: Callable[[Mapping[Partition, int]], None]
    ) -> None:
        self._state = state
        self._await_records = await_records
        self._saving = threading.Lock()

    def visit(self, owned: SessionUnit) -> bool:
        """True if the unit can deliver now. Loads its ledger, commits `handed_out` or reads ahead
        first if needed.

        If False, the unit has left the ready queue, or waits there for memory to read ahead. Raises
        the error that makes a unit unreadable, once.
        """
        state = self._state
        actions = {
            UnitStep.LOAD: owned.load,
            UnitStep.COMMIT: owned.commit,
            UnitStep.READ: owned.read,
        }
        while True:
            with state.lock:
                step = state.machine.step(owned, state.clock.monotonic())
            if step is UnitStep.WAIT:
                break
            if step not in actions:
                return step is UnitStep.DELIVER
            try:
                self._try(owned, actions[step])
            except HubClosed:
                raise
            except Error:
                owned.unreadable = True
                raise
        self._warn_if_stalled(owned)
        self._watch(owned)
        return False

    def end(self) -> None:
        """Commit the final progress of the units that have come to their end."""
        state = self._state
        with state.lock:
            ending = state.machine.scheduler.pop_ending(state.clock.monotonic())
        self._commit_all(ending)

    def save(self) -> bool:
        """Commit the acknowledgements. False if some could not be committed: call it again."""
        state = self._state
        with self._saving:  # so that the second caller returns when the first one's commit is done
            with state.lock:
                units = state.machine.pop_unsaved()
            try:
                return self._commit_all(units)
            except BaseException:
                with state.lock:
                    for owned in units:
                        state.machine.scheduler.must_save(owned)
                raise

    def _commit_all(self, units: Collection[SessionUnit]) -> bool:
        """Commit the progress of these units. False if a commit failed.

        Each unit has a fence and so a transaction of its own. Many are committed side by side, so
        that the backend syncs them together.
        """
        if len(units) < COMMITS_AT_ONCE:
            done = [self._commit(owned) for owned in units]
            return all(done)
        begun: list[Future[bool]] = []
        with ThreadPoolExecutor(COMMITS_AT_ONCE, "tailrace commits") as pool:
            for owned in units:
                try:
                    begun.append(pool.submit(self._commit, owned))
                except RuntimeError:  # the interpreter shuts down and starts no more threads
                    break
        done = [future.result() for future in begun]
        done += [self._commit(owned) for owned in list(units)[len(begun) :]]
        return all(done)

    def _commit(self, owned: SessionUnit) -> bool:
        return self._try(owned, owned.load) and self._try(owned, owned.commit)

    def _watch(self, owned: SessionUnit) -> None:
        """Have a unit watched that was read to its end, and inspect it once more after that."""
        machine = self._state.machine
        with self._state.lock:
            at, at_stop = owned.watch(), machine.at_stop(owned)
        if at is None:
            return
        if not at_stop:
            self._await_records({owned.partition: at})
        if not self._try(owned, owned.inspect):
            with self._state.lock:
                owned.unwatch()

    def _warn_if_stalled(self, owned: SessionUnit) -> None:
        with self._state.lock:
            if not self._state.machine.newly_stalled(owned) or owned.cursor is None:
                return
            failed = owned.cursor.failed
        _log.warning(
            "group %s: %s is stalled: %s failed and blocked their keys; skip some, or restart the"
            " consumer",
            self._state.machine.group,
            owned.name,
            format_amount(failed, "message"),
        )

    def _try(self, owned: SessionUnit, action: Callable[[], None]) -> bool:
        """Call the action. False if it failed: the unit is lost, or retries later."""
        state = self._state
        try:
            action()
        except (Fenced, UnknownTopic):
            owned.lose()
            return False
        except HubClosed:
            raise
        except Error as error:
            # An unknown outcome is an outage too: the entries of a ledger can be written twice.
            if not (error.retryable or isinstance(error, BackendUnavailable)):
                raise
            state.outage.failed(error)
            with state.lock:
                state.machine.failed(owned, state.clock.monotonic())
            return False
        return True
