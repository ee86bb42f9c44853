"""The keys of one endpoint at a worker. A file of secrets is read again every few seconds, so that
a new secret is used without a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tailrace.errors import InvalidValue
from tailrace.subscription.endpoint.secret import FILE, read_keys

READ_AGAIN_S: Final = 10.0

_log: Final = logging.getLogger("tailrace.subscription")


class SigningKeys:
    """The keys of a secret. `monotonic` is the clock."""

    def __init__(self, secret: str, monotonic: Callable[[], float]) -> None:
        self.secret = secret
        self._monotonic = monotonic
        self._keys: tuple[bytes, ...] | InvalidValue = self._read()

    def current(self) -> tuple[bytes, ...]:
        """Return the keys. If their file cannot be read any more, those that were read last.

        `InvalidValue` if it could not be read yet.
        """
        if self.secret.startswith(FILE) and self._monotonic() - self._read_at >= READ_AGAIN_S:
            found = self._read()
            if isinstance(found, InvalidValue) and not isinstance(self._keys, InvalidValue):
                _log.error("the secret that was read before is still used: %s", found)
            else:
                self._keys = found
        if isinstance(self._keys, InvalidValue):
            raise self._keys
        return self._keys

    def _read(self) -> tuple[bytes, ...] | InvalidValue:
        self._read_at = self._monotonic()
        try:
            return read_keys(self.secret)
        except InvalidValue as error:
            return error
