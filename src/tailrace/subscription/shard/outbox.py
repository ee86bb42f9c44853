"""What a shard has decided and not stored yet. One commit is under way at a time."""

from __future__ import annotations

from tailrace.subscription.shard.commit import ShardCommit


class Outbox:
    """The parts of the next commit, and the commit that is under way. For one thread at a time."""

    def __init__(self) -> None:
        self.ready = ShardCommit()
        """What was decided since the last commit started."""
        self.urgent = False
        """True if something of it should be stored at once."""
        self._under_way: ShardCommit | None = None
        self._unstored: ShardCommit | None = None

    @property
    def idle(self) -> bool:
        """True if no commit is under way."""
        return self._under_way is None

    @property
    def due(self) -> bool:
        """True if something waits for a commit."""
        return self.idle and bool(self.urgent or self._unstored or self.ready.moves)

    @property
    def moves(self) -> int:
        """The number of messages that wait to be moved."""
        unstored = 0 if self._unstored is None else len(self._unstored.moves)
        return len(self.ready.moves) + unstored

    @property
    def move_bytes(self) -> int:
        """The approximate size of the messages that wait to be moved."""
        return self.ready.move_bytes + (0 if self._unstored is None else self._unstored.move_bytes)

    def collect(self) -> ShardCommit:
        """Return everything that is ready. What could not be stored before goes first."""
        assert self.idle, "one commit at a time"
        ready, self.ready, self.urgent = self.ready, ShardCommit(), False
        if self._unstored is not None:
            ready, self._unstored = self._unstored.followed_by(ready), None
        return ready

    def begin(self, commit: ShardCommit) -> None:
        """Record that a commit is under way."""
        self._under_way = commit

    def stored(self, commit: ShardCommit) -> None:
        """Record that it is stored."""
        assert commit is self._under_way
        self._under_way = None

    def not_stored(self, commit: ShardCommit) -> None:
        """Record that nothing of it was written: all of it stays, and goes first."""
        assert commit is self._under_way
        self._under_way, self._unstored = None, commit
