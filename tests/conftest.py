"""Fixtures and options of all tests: profiles, parts of a soak, evidence, PostgreSQL."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.counts import soaking
from tests.support.evidence import Evidence, RecordEvidence, append_line
from tests.support.servers.shared import Unavailable, shared_server

if TYPE_CHECKING:
    from tests.support.servers.postgres import OwnPostgres

settings.register_profile(
    "test", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("test"), max_examples=5000)
settings.load_profile("soak" if soaking() else "test")

pytest.register_assert_rewrite("tests.support.effects_contract", "tests.support.sql_contract")

# A process that a shell starts in the background ignores SIGINT, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="run only the tests marked with this part of the soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    if part is None:
        return
    chosen = [item for item in items if part in _parts(item)]
    config.hook.pytest_deselected(items=[item for item in items if part not in _parts(item)])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail skipped tests in CI, with the reason, so that none is left out unnoticed.

    Captured text may have lone surrogates, which the processes of a run cannot exchange.
    """
    report = yield
    report.sections = [(title, _without_surrogates(text)) for title, text in report.sections]
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"may not be skipped in CI: {reason}"
    return report


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _parts(item: pytest.Item) -> set[str]:
    return {name for mark in item.iter_markers("part") for name in mark.args}


@pytest.fixture(scope="session")
def record_evidence() -> RecordEvidence:
    """Record a claim and the number of checks. Only a soak keeps it."""
    file = os.environ.get("TAILRACE_EVIDENCE")

    def record(part: str, what: str, count: int, seeds: Sequence[int], violations: int) -> None:
        if file is not None:
            append_line(Path(file), Evidence(part, what, count, tuple(seeds), violations))

    return record


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    """The port of a real PostgreSQL that all tests of this run share."""
    try:
        with shared_server("tests.support.servers.postgres") as port:
            yield port
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.fixture
def own_postgres() -> Iterator[OwnPostgres]:
    """A real PostgreSQL for this test alone, which it may stop and start again."""
    from tests.support.servers.postgres import own_server

    try:
        with own_server() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.fixture
def postgres_url(postgres_port: int) -> Iterator[str]:
    """An empty database of a real PostgreSQL, for this test alone."""
    from tests.support.servers.postgres import fresh_database

    with fresh_database(postgres_port) as url:
        yield url
