"""A directory that files are written to: on this machine, or in an object store by URL."""

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

from tailrace.errors import ConfigError

_OBJECT_STORES: Final = frozenset({"abfs", "gcs", "s3"})
"""File systems in which a directory is there once it has a file, and need not be made."""


class Place:
    """A directory, and the files below it by their names relative to it, divided by ``/``.

    What `sync`, `move` and `make_directory` did is on the disk when they return; in an object store
    a file is durable once it is closed, and to move it is to copy and delete it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._system: FileSystem
        try:
            if "://" in path:
                self._system, root = FileSystem.from_uri(path)
            else:
                self._system, root = LocalFileSystem(), os.path.abspath(path)
        except (pa.ArrowException, OSError) as error:
            raise ConfigError(
                f"{path} cannot be reached: {error}",
                "valid: a directory, or the URL of one, such as s3://bucket/orders",
            ) from error
        self._root = root.rstrip("/")
        self._local = isinstance(self._system, LocalFileSystem)

    def check(self) -> str:
        """Whether files can be written here, in a sentence; `ConfigError` if they cannot."""
        found = self._info("")
        if found.type == FileType.File:
            raise ConfigError(f"{self.path} is a file", "valid: a directory, which may be new")
        if not self._local:
            return f"{self.path} is reached"
        directory = self._root or "/"
        while not os.path.exists(directory):
            directory = os.path.dirname(directory)
        if not os.path.isdir(directory) or not os.access(directory, os.W_OK | os.X_OK):
            raise ConfigError(f"{directory} cannot be written to", "choose another path")
        new = found.type == FileType.NotFound
        return f"{self.path} will be made" if new else f"{self.path} is there"

    def create(self, name: str) -> pa.NativeFile:
        """A new file, to be written and closed. Its directory is made."""
        self.make_directory(os.path.dirname(name))
        return self._system.open_output_stream(self._full(name), compression=None)

    def exists(self, names: Iterable[str]) -> list[bool]:
        """Which of these files are there."""
        infos = self._system.get_file_info([self._full(name) for name in names])
        return [info.type == FileType.File for info in infos]

    def files(self, directory: str = "") -> list[str]:
        """The names of all files below a directory, which need not exist."""
        selector = FileSelector(self._full(directory), allow_not_found=True, recursive=True)
        infos = self._system.get_file_info(selector)
        return [self._name(info) for info in infos if info.type == FileType.File]

    def directories(self, directory: str) -> list[str]:
        """The names of the directories in a directory, which need not exist."""
        selector = FileSelector(self._full(directory), allow_not_found=True)
        infos = self._system.get_file_info(selector)
        return [self._name(info) for info in infos if info.type == FileType.Directory]

    def make_directory(self, name: str) -> None:
        """Make a directory and those above it."""
        full = self._full(name)
        if not self._local:
            if self._base_kind() not in _OBJECT_STORES:
                self._system.create_dir(full, recursive=True)
            return
        made = []
        while not os.path.isdir(full):
            made.append(full)
            full = os.path.dirname(full)
        for each in reversed(made):
            os.makedirs(each, exist_ok=True)
            _sync_path(os.path.dirname(each))

    def move(self, name: str, new_name: str) -> None:
        """Move a file over whatever has the new name, into a directory that exists."""
        self._system.move(self._full(name), self._full(new_name))

    def sync(self, names: Iterable[str]) -> None:
        """Files that are closed, and directories, with what was created in or moved into them."""
        if self._local:
            for name in names:
                _sync_path(self._full(name))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self._info(name).type == FileType.File:
            self._system.delete_file(self._full(name))

    def remove_directory(self, name: str) -> None:
        """Remove a directory with all in it, if it is there."""
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


def _sync_path(path: str) -> None:
    descriptor = os.open(path or "/", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
