"""The splits of a source and what they wait for. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tailrace.source.reader import Split
from tailrace.source.split_state import SplitState, StoredSplits, unit_of


class SplitGraph:
    """The known splits of a source: all of them, or those of some units and what these follow.

    A split that is not known is not finished, unless it was `removed_early`: an earlier version of
    this table removed every split as soon as it was finished.
    """

    def __init__(self, *, removed_early: bool = False) -> None:
        self.removed_early = removed_early
        self.states: dict[str, SplitState] = {}
        self.parents: dict[str, set[str]] = {}
        """For each split, the splits that reported it; empty if that is not known."""

    @classmethod
    def of(cls, stored: StoredSplits) -> SplitGraph:
        """Return the graph of a table."""
        graph = cls(removed_early=stored.removed_early)
        graph.add(stored, sorted(stored.states.keys() | stored.reports.keys()))
        return graph

    def add(self, stored: StoredSplits, split_ids: Iterable[str]) -> None:
        """Add some splits of a table. A split without a state has not begun."""
        for split_id in split_ids:
            reports: Mapping[str, Split] = stored.reports.get(split_id, {})
            state = stored.states.get(split_id)
            if state is None:
                state = SplitState(next(iter(reports.values())))
            self.states[split_id] = state
            self.parents[split_id] = set(reports)

    def discard(self, split_id: str) -> None:
        """Remove a split."""
        self.states.pop(split_id, None)
        self.parents.pop(split_id, None)

    def is_finished(self, split_id: str) -> bool:
        """True if a split is finished."""
        state = self.states.get(split_id)
        return self.removed_early if state is None else state.finished

    def waits_for(self, split_id: str) -> list[str]:
        """Return the splits that a split follows and that are not finished."""
        follows = self.states[split_id].split.follows
        return [each for each in follows if not self.is_finished(each)]

    def unmet(self) -> dict[str, list[str]]:
        """Return the splits that wait for others which are not known, with those. For a complete
        graph."""
        found = {
            split_id: [each for each in self.waits_for(split_id) if each not in self.states]
            for split_id, state in self.states.items()
            if not state.finished
        }
        return {split_id: unknown for split_id, unknown in found.items() if unknown}

    def may_start(self, split_id: str) -> bool:
        """True if a split is not finished, and all that it follows are."""
        if self.is_finished(split_id):
            return False
        return all(map(self.is_finished, self.states[split_id].split.follows))

    def removable(self) -> list[str]:
        """Return the finished splits that no unfinished split follows, and that need not be kept.

        For a complete graph.
        """
        needed = {
            each
            for state in self.states.values()
            if not state.finished
            for each in state.split.follows
        }
        return [
            split_id
            for split_id, state in self.states.items()
            if state.finished and split_id not in needed and not state.split.kept
        ]

    def units(self) -> dict[str, list[str]]:
        """Return the splits of each unit."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for split_id, state in self.states.items():
            found[unit_of(state.split)].append(split_id)
        return dict(found)

    def unfinished_units(self) -> set[str]:
        """Return the units with a split that is not finished."""
        return {unit_of(state.split) for state in self.states.values() if not state.finished}
