"""One session whose splits are read, given to another task, and taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailrace import readers
from tailrace.readers.file.session import FileReaderSession
from tailrace.source.reader import Split, Until
from tests.unit.readers.file.followed_files import append, lines


def _splits(session: FileReaderSession) -> tuple[Split, Split, Any]:
    """Copy a file; return the split that follows it, the watch, and the registry."""
    [discovered] = session.read(Split("discover"), None, None, {})
    assert discovered is not None
    copy, watch = discovered.children
    [copied, _] = session.read(copy, None, None, {})
    assert copied is not None
    [follow] = copied.children
    return follow, watch, watch.data["registry"]


def test_splits_that_come_back_wait_for_a_new_look_at_the_files(log: Path) -> None:
    with readers.file(str(log), poll="1us").open(Until.STOPPED) as session:
        follow, watch, registry = _splits(session)
        following = session.read(follow, None, None, {})
        watching = session.read(watch, registry, None, {})
        assert next(following) is None
        assert next(watching) is None
        append(log, lines(3))
        batch = next(following)
        assert batch is not None
        append(log, lines(4))
        # Another task takes both, and gives them back.
        del following, watching
        following = session.read(follow, batch.position, None, {})
        watching = session.read(watch, registry, None, {})
        assert next(following) is None
        assert next(watching) is None
        assert next(following) is not None


def test_splits_that_are_read_together_share_what_they_know(log: Path) -> None:
    with readers.file(str(log), poll="1us").open(Until.STOPPED) as session:
        follow, watch, registry = _splits(session)
        watching = session.read(watch, registry, None, {})
        assert next(watching) is None
        append(log, lines(3))
        following = session.read(follow, None, None, {})
        assert next(following) is not None
