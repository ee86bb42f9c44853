"""The id that a user gave to a worker, as its session holds it."""

from __future__ import annotations

from tailrace.backend.contract import Backend
from tailrace.errors import Fenced
from tailrace.subscription.store.worker_ids import claim_id, id_version, release_id


class ClaimedId:
    """The id of a worker; None if it was given none. For the threads of its session."""

    def __init__(self, backend: Backend, subscription: str, id: str | None, session: str) -> None:
        self._backend = backend
        self._subscription = subscription
        self._id = id
        self._session = session
        self._version = 0
        self._suspected = False

    def claim(self) -> None:
        """Take the id over from another worker."""
        if self._id is not None:
            name, id = self._subscription, self._id
            self._version = claim_id(self._backend, name, id, self._session)

    def release(self) -> None:
        """Give the id up, unless another worker has claimed it."""
        if self._id is not None:
            release_id(self._backend, self._subscription, self._id, self._session)

    def suspect(self) -> None:
        """Have the next `check` read the store: another worker may have claimed the id."""
        self._suspected = self._id is not None

    def check(self) -> None:
        """Raise `Fenced` if another worker has claimed the id."""
        if not self._suspected or self._id is None:
            return
        version = id_version(self._backend, self._subscription, self._id)
        if version != self._version:
            what = f"the id {self._id!r} of a worker of {self._subscription}"
            raise Fenced(what, self._version, version or None)
        self._suspected = False
