"""Child processes that tests start, listen to, and kill at any instant.

They are forked from a server that has the imports done and nothing open, so that starting one
takes milliseconds and it shares no file with the test.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec, TypeAlias

Report: TypeAlias = Callable[[Any], None]
"""How a child tells something: it has left the child when the call returns, whatever comes."""

P = ParamSpec("P")

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["tests.integration.children", "tailrace.backend.embedded", "tailrace.hub"]
)
_ANSWER_S = 60.0


class Child:
    """A process that runs `work(report, ...)` and lives until it returns or is killed."""

    def __init__(
        self,
        work: Callable[Concatenate[Report, P], None],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> None:
        self._reports, sender = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(
            target=_run, args=(work, sender, arguments, keywords), daemon=True
        )
        self._process.start()
        sender.close()

    def next_report(self, within_s: float = _ANSWER_S) -> Any:
        """Wait for the next thing it tells; `EOFError` when it is dead and has told all."""
        if not self._reports.poll(within_s):
            raise TimeoutError(f"nothing was heard of the child for {within_s:g} s")
        return self._reports.recv()

    def reports_for(self, seconds: float) -> Iterator[Any]:
        """What it tells from now on, so long."""
        end = time.monotonic() + seconds
        while self._reports.poll(max(0.0, end - time.monotonic())):
            try:
                yield self._reports.recv()
            except EOFError:
                return

    def kill(self) -> Iterator[Any]:
        """End it as by `kill -9`, wherever it is, and give what it had told before."""
        self._process.kill()
        return self.rest()

    def rest(self) -> Iterator[Any]:
        """All that it still tells until it ends."""
        while True:
            try:
                yield self.next_report()
            except EOFError:
                break
        self._process.join(_ANSWER_S)

    @property
    def pid(self) -> int:
        """Its number, for signals."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended: 0 well, -9 killed, None not yet."""
        return self._process.exitcode


def _run(
    work: Callable[..., None],
    sender: Connection,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> None:
    work(sender.send, *arguments, **keywords)
