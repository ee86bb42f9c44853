"""Calls of every operation on sources, for a hub with the source ``shop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tailrace.clock import utc_time
from tailrace.operations.source import (
    checks,
    describe,
    explain_source,
    forget,
    health,
    history,
    lookup,
    trial,
)
from tailrace.source.source import Source
from tests.support.pipelines.lake import Lake
from tests.support.sources.split_reader import SplitReader

SHOP: Final = Source("shop", SplitReader())


def view(operator: Lake) -> describe.SourceView:
    """Return the source, which has run."""
    SHOP.run(operator.hub, once=True)
    return describe.view_source(operator.hub, "shop")


def has_run(operator: Lake) -> str:
    """Run the source, and return its name."""
    return view(operator).name


SOURCES: Final[dict[Callable[..., Any], Callable[[Lake], Any]]] = {
    checks.check_source: lambda o: checks.check_source(o.hub, view(o), utc_time(0)),
    describe.view_sources: lambda o: describe.view_sources(o.hub),
    describe.view_source: lambda o: describe.view_source(o.hub, has_run(o)),
    describe.count_source_letters: lambda o: describe.count_source_letters(
        o.hub, lookup.find_entry(o.hub, has_run(o))
    ),
    explain_source.explain_source: lambda o: explain_source.explain_source(o.hub, has_run(o)),
    forget.plan_forget: lambda o: forget.plan_forget(o.hub, has_run(o)),
    forget.forget: lambda o: forget.forget(o.hub, has_run(o)),
    health.judge_source: lambda o: health.judge_source(o.hub, view(o)),
    health.silent_tasks: lambda o: health.silent_tasks(o.hub, view(o)),
    history.read_source_history: lambda o: history.read_source_history(o.hub, has_run(o), 10),
    lookup.find_entry: lambda o: lookup.find_entry(o.hub, has_run(o)),
    trial.try_source: lambda o: trial.try_source(SHOP, o.hub),
}
