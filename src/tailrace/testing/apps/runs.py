"""The runs of one test, closed at its end."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from tailrace.app.app import App
from tailrace.testing.apps.run import AppRun


class AppRuns:
    """Starts runs of apps, and closes them: the fixture `tailrace` of pytest."""

    def __init__(self) -> None:
        self._runs = contextlib.ExitStack()

    def run(self, app: App, *, seed: int = 0) -> AppRun:
        """Return a run of an app, see `tailrace.testing.run`. It is closed when the test ends."""
        return self._runs.enter_context(AppRun(app, seed=seed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runs.close()
