"""The progress of the namespaces of a source."""

from __future__ import annotations

from tailrace.source.reader import Split
from tailrace.source.report import NamespaceProgress, namespace_progress
from tailrace.source.split_state import SplitState, StoredSplits


def stored(*states: SplitState, reported: tuple[Split, ...] = ()) -> StoredSplits:
    """Return a table with these states, and reports of them and of other splits."""
    splits = (*(state.split for state in states), *reported)
    return StoredSplits(
        {state.split.id: state for state in states},
        {split.id: {"parent": split} for split in splits},
    )


def copying(id: str, expected: int | None = 100, namespace: str = "orders") -> Split:
    return Split(id, namespace=namespace, rows_expected=expected)


def test_a_source_without_namespaces_has_no_progress() -> None:
    assert namespace_progress(stored(SplitState(Split("discover")))) == ()
    assert namespace_progress(StoredSplits()) == ()


def test_the_splits_of_a_namespace_are_added_up_also_those_that_have_not_begun() -> None:
    begun = SplitState(copying("a"), rows=40), SplitState(copying("b"), rows=7)
    table = stored(*begun, reported=(copying("c"),))
    assert namespace_progress(table) == (NamespaceProgress("orders", 47, 300, copying=True),)


def test_a_namespace_is_copied_until_each_of_its_copies_is_finished() -> None:
    done = SplitState(copying("a"), rows=100, finished=True)
    last = SplitState(copying("b"), rows=99)
    following = SplitState(Split("follow", namespace="orders"), rows=5)
    assert namespace_progress(stored(done, last, following))[0].copying
    ended = SplitState(copying("b"), rows=101, finished=True)
    assert namespace_progress(stored(done, ended, following)) == (
        NamespaceProgress("orders", 206, 200, copying=False),
    )


def test_a_namespace_whose_rows_nobody_expects_is_followed() -> None:
    table = stored(SplitState(Split("follow", namespace="orders"), rows=5))
    assert namespace_progress(table) == (NamespaceProgress("orders", 5, None, copying=False),)


def test_namespaces_are_sorted_by_name() -> None:
    table = stored(SplitState(copying("1", namespace="z")), SplitState(copying("2", namespace="a")))
    assert [each.namespace for each in namespace_progress(table)] == ["a", "z"]
