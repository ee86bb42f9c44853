"""The state tables in the docs are those of the code."""

from __future__ import annotations

from tests.docs.transitions import PAGE, with_tables


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == with_tables(page), "write them again: python -m tests.docs.transitions"
