"""The plug-in of pytest, which has the fixture `tailrace`: ``run = tailrace.run(app)``.

Every run of pytest where Tailrace is installed loads this module, so it imports nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tailrace.testing.apps.runs import AppRuns


@pytest.fixture(name="tailrace")
def tailrace_fixture() -> Iterator[AppRuns]:
    """Runs of Tailrace apps in memory and virtual time: ``run = tailrace.run(app)``."""
    from tailrace.testing.apps.runs import AppRuns

    with AppRuns() as runs:
        yield runs
