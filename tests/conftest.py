"""What all tests share: the amount of work by profile, the parts of a soak, and its evidence."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.evidence import Evidence, RecordEvidence, append_line
from tests.scale import soaking
from tests.servers.shared import Unavailable, shared_server

settings.register_profile(
    "test", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("test"), max_examples=5000)
settings.load_profile("soak" if soaking() else "test")

pytest.register_assert_rewrite("tests.unit.writers.sql_contract")

# Whatever a shell starts in the background ignores interrupts, and so would all its children.
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
    """In CI nothing is left out quietly: a test that would be skipped fails with the reason."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"may not be skipped in CI: {reason}"
    return report


def _parts(item: pytest.Item) -> set[str]:
    return {name for mark in item.iter_markers("part") for name in mark.args}


@pytest.fixture(scope="session")
def record_evidence() -> RecordEvidence:
    """Report a claim and how often it was put to the test; kept only by a soak."""
    file = os.environ.get("TAILRACE_EVIDENCE")

    def record(part: str, what: str, count: int, seeds: Sequence[int], violations: int) -> None:
        if file is not None:
            append_line(Path(file), Evidence(part, what, count, tuple(seeds), violations))

    return record


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    """The port of a real PostgreSQL that all tests of this run share."""
    try:
        with shared_server("tests.servers.postgres") as port:
            yield port
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.fixture
def postgres_url(postgres_port: int) -> Iterator[str]:
    """An empty database of a real PostgreSQL, for this test alone."""
    from tests.servers.postgres import fresh_database

    with fresh_database(postgres_port) as url:
        yield url
