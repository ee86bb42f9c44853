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
        self._keys = read_keys(secret)
        self._read_at = monotonic()

    def current(self) -> tuple[bytes, ...]:
        """Return the keys. If their file cannot be read any more, those that were read last."""
        if self.secret.startswith(FILE):
            now = self._monotonic()
            if now - self._read_at >= READ_AGAIN_S:
                self._read_at = now
                try:
                    self._keys = read_keys(self.secret)
                except InvalidValue as error:
                    _log.error("the secret that was read before is still used: %s", error)
        return self._keys
