"""The errors of hubs, their storage, and the databases that handlers write to."""

from __future__ import annotations

import shlex

from tailrace.errors.base import Error


class UnknownHub(Error, LookupError):
    """No hub in that directory, and the caller did not ask to create one."""

    def __init__(self, path: str) -> None:
        self.path = path
        command = f"tailrace --hub {shlex.quote(path)}"
        super().__init__(
            f"no hub in {path}",
            f"create it: {command} topic create NAME (or {command} pipeline run FILE),"
            " or give the path of a hub",
        )


class IncompatibleHub(Error, RuntimeError):
    """A directory that is not a hub, is a hub of a newer format, or is on a network file system."""


class ReadOnlyHub(Error, PermissionError):
    """The hub was opened read-only, or this process may not write its files. Nothing was
    written."""


class NotSupported(Error, RuntimeError):
    """The backend of the hub cannot do the operation. Nothing was changed."""

    def __init__(self, operation: str, backend: str, reason: str) -> None:
        self.operation = operation
        self.backend = backend
        self.reason = reason
        super().__init__(
            f"hub {backend!r} cannot {operation}: {reason}", "use a hub in a directory"
        )


class BackendUnavailable(Error, TimeoutError):
    """The storage did not answer in time. Nothing was written, except with `OutcomeUnknown`."""

    retryable = True


class DiskFull(BackendUnavailable):
    """No space on the disk. Nothing was written; free some space and retry."""


class HubClosed(BackendUnavailable):
    """The hub was closed, or stopped itself after a failed sync."""

    retryable = False


class HubReplaced(HubClosed):
    """The files that this process has open are no longer those of the hub at its path: the hub was
    removed, moved, or replaced by another one or by a backup. Nothing was written."""

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(
            f"the hub {path} was removed or replaced while this process had it open: {found}",
            "nothing was written",
            "restart this process, or open the hub again, if the hub that is there now is right",
        )


class OutcomeUnknown(BackendUnavailable):
    """The commit may or may not have happened. Named producers check it and retry themselves."""

    retryable = False


class EffectsUnavailable(Error, ConnectionError):
    """The database that a handler writes to did not answer. Nothing was written.

    `database` is its address without user and password.
    """

    retryable = True

    def __init__(self, database: str, reason: str, remedy: str = "") -> None:
        self.database = database
        self.reason = reason
        super().__init__(
            f"the database of effects {database} is unavailable: {reason}",
            "nothing was written",
            remedy,
        )
