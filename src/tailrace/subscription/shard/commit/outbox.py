"""What a shard has decided and not stored yet. One commit is under way at a time."""

from __future__ import annotations

from tailrace.subscription.shard.commit.commit import ShardCommit


class Outbox:
    """The parts of the next commit, and the commit that is under way. For one thread at a time."""

    def __init__(self, append_bytes_max: int) -> None:
        self._append_bytes_max = append_bytes_max
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
        return self.idle and bool(
            self.urgent or self._unstored or self.ready.moves or self.ready.outputs
        )

    @property
    def moves(self) -> int:
        """The number of messages that wait to be moved."""
        unstored = 0 if self._unstored is None else len(self._unstored.moves)
        return len(self.ready.moves) + unstored

    @property
    def early(self) -> bool:
        """True if messages are to be called once a commit is stored that acknowledges them."""
        waiting = (self._under_way, self._unstored)
        return any(each.early for each in waiting if each is not None)

    @property
    def quiesces(self) -> bool:
        """True if the commit that is under way says that nothing is in flight."""
        return self._under_way is not None and self._under_way.quiet

    @property
    def full(self) -> bool:
        """True if what waits to be appended has as many bytes as it may."""
        unstored = 0 if self._unstored is None else self._unstored.append_bytes
        return self.ready.append_bytes + unstored >= self._append_bytes_max

    @property
    def discarded(self) -> int:
        """The number of dead letters that wait to be discarded."""
        return self.ready.discarded + (0 if self._unstored is None else self._unstored.discarded)

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
