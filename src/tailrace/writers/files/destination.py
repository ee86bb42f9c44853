"""A directory that files are written to: on this machine, or by URL in an object store."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileType,
    LocalFileSystem,
    SubTreeFileSystem,
)

from tailrace.errors import BackendUnavailable, ConfigError

_OBJECT_STORES: Final = frozenset({"abfs", "gcs", "s3"})
"""File systems in which a directory exists as soon as it has a file."""


class Destination:
    """A directory. Files in it have names relative to it, separated by ``/``.

    On a local disk, the effects of `sync` and `make_directory` are durable when they return; a
    `move` is durable after `sync` of the target directory. In an object store, a file is durable
    once it is closed, and a move is a copy followed by a delete.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._system: FileSystem
        try:
            if "://" in path:
                self._system, root = FileSystem.from_uri(path)
            else:
                self._system, root = LocalFileSystem(), os.path.abspath(path)
        except OSError as error:
            raise BackendUnavailable(f"{path} cannot be opened: {error}") from error
        except pa.ArrowException as error:
            raise ConfigError(
                f"{path} cannot be opened: {error}",
                "valid: a directory, or a URL such as s3://bucket/orders",
            ) from error
        self._root = root.rstrip("/")
        self._local = isinstance(self._system, LocalFileSystem)

    @property
    def local_directory(self) -> str | None:
        """The absolute path of the directory; None if it is in an object store."""
        return (self._root or "/") if self._local else None

    def check(self) -> str:
        """Return a sentence about the directory; `BackendUnavailable` if it is not writable."""
        found = self._info("")
        if found.type == FileType.File:
            raise BackendUnavailable(
                f"{self.path} is a file", "valid: a directory, existing or new"
            )
        if not self._local:
            return f"{self.path} is reachable"
        directory = self._root or "/"
        while not os.path.exists(directory):
            directory = os.path.dirname(directory)
        if not os.path.isdir(directory) or not os.access(directory, os.W_OK | os.X_OK):
            raise BackendUnavailable(f"{directory} is not writable", "choose another path")
        new = found.type == FileType.NotFound
        return f"{self.path} will be created" if new else f"{self.path} exists"

    def create_root(self) -> None:
        """Create the directory itself, and its parents."""
        if self._local:
            _make_local(self._root or "/")
        elif self._base_kind() not in _OBJECT_STORES:
            self._system.create_dir(self._root, recursive=True)

    def check_root(self) -> None:
        """Raise `BackendUnavailable` if the directory does not exist.

        Once it was created, a missing directory means that its disk is not mounted. Creating it
        again would write to another disk.
        """
        if self._base_kind() in _OBJECT_STORES:
            return
        found = self._info("").type
        if found != FileType.Directory:
            reason = "does not exist" if found == FileType.NotFound else "is not a directory"
            raise BackendUnavailable(
                f"{self.path} {reason}", "mount its disk, or create the directory"
            )

    def create(self, name: str) -> pa.NativeFile:
        """Create a file and its directory; the caller writes and closes the file."""
        self.make_directory(os.path.dirname(name))
        return self._system.open_output_stream(self._full(name), compression=None)

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for reading at any position."""
        return self._system.open_input_file(self._full(name))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            with self.open(name) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes) -> None:
        """Write a whole file in one atomic step, and sync it."""
        # An object store shows a new file only once it is closed.
        written = f"{name}.new" if self._local else name
        with self.create(written) as stream:
            stream.write(data)
        if written != name:
            self.sync([written])
            self.move(written, name)
            self.sync([os.path.dirname(name)])

    def exists(self, names: Iterable[str]) -> list[bool]:
        """Return, for each name, whether that file exists."""
        infos = self._system.get_file_info([self._full(name) for name in names])
        return [info.type == FileType.File for info in infos]

    def files(self, directory: str = "") -> list[str]:
        """Return the names of all files below a directory; empty if it does not exist."""
        selector = FileSelector(self._full(directory), allow_not_found=True, recursive=True)
        infos = self._system.get_file_info(selector)
        return [self._name(info) for info in infos if info.type == FileType.File]

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories in a directory; empty if it does not exist."""
        selector = FileSelector(self._full(directory), allow_not_found=True)
        infos = self._system.get_file_info(selector)
        return [self._name(info) for info in infos if info.type == FileType.Directory]

    def make_directory(self, name: str) -> None:
        """Create a directory and its parents in this one, which must exist."""
        full = self._full(name)
        if self._local and os.path.isdir(full):
            return
        self.check_root()
        if self._local:
            _make_local(full)
        elif self._base_kind() not in _OBJECT_STORES:
            self._system.create_dir(full, recursive=True)

    def move(self, name: str, new_name: str) -> None:
        """Move a file into an existing directory; replace a file that has the new name."""
        self._system.move(self._full(name), self._full(new_name))

    def sync(self, names: Iterable[str]) -> None:
        """Sync closed files, and directories with what was created in or moved into them."""
        if self._local:
            for name in names:
                _sync_path(self._full(name))

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        if self._info(name).type == FileType.File:
            self._system.delete_file(self._full(name))

    def remove_directory(self, name: str) -> None:
        """Remove a directory and its content if it exists."""
        if self._info(name).type == FileType.Directory:
            self._system.delete_dir(self._full(name))

    def _full(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _name(self, info: FileInfo) -> str:
        return info.path.removeprefix(f"{self._root}/")

    def _info(self, name: str) -> FileInfo:
        return self._system.get_file_info(self._full(name) or "/")

    def _base_kind(self) -> str:
        system = self._system
        while isinstance(system, SubTreeFileSystem):
            system = system.base_fs
        return system.type_name


def _make_local(path: str) -> None:
    """Create a directory and its parents, and sync their names."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        os.makedirs(each, exist_ok=True)
        _sync_path(os.path.dirname(each))


def _sync_path(path: str) -> None:
    descriptor = os.open(path or "/", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
