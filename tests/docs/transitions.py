"""`python -m tests.docs.transitions`: write the state tables of the code into the docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from tailrace.group.protocol.states import ASSIGNMENT, BORROWED_UNIT, BORROWER
from tailrace.machine import Transitions

PAGE: Final = Path(__file__).parents[2] / "docs" / "groups-protocol.md"
TABLES: Final[tuple[Transitions[Any], ...]] = (BORROWER, BORROWED_UNIT, ASSIGNMENT)


def with_tables(page: str) -> str:
    """Return the page with the table of the code under each heading."""
    for table in TABLES:
        heading = f"### {table.subject[0].upper()}{table.subject[1:]}\n\n"
        assert heading in page, f"no heading {heading.strip()!r} in {PAGE.name}"
        before, after = page.split(heading)
        after = re.sub(r"\A(\|.*\n)*\n*", "", after)
        page = f"{before}{heading}{table.markdown()}\n\n{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
