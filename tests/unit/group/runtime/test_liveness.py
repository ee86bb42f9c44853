"""The liveness of a process, as another one sees it."""

from __future__ import annotations

import pytest

from tailrace.errors import BackendUnavailable
from tailrace.group.protocol.events import Gone, Stalled
from tailrace.group.runtime.liveness import Liveness
from tailrace.testing import ManualClock

LEASE_S = 3.0


class Watched:
    """Heartbeats that a test sets, and probes that take time or fail."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.beats: int | None = 0
        self.fails = False
        self.takes_s = 0.0
        self.probing = Liveness(self._read, self.clock, LEASE_S)

    def _read(self, name: str) -> int | None:
        assert name == "process/p"
        self.clock.advance(self.takes_s)
        if self.fails:
            raise BackendUnavailable("no")
        return self.beats

    def probe(self) -> Gone | Stalled | None:
        found = self.probing.probe("p")
        return found._replace(probed_at=0.0) if isinstance(found, Stalled) else found

    def look_for(self, seconds: float) -> list[Gone | Stalled | None]:
        seen = []
        for _ in range(int(seconds / 0.25)):
            self.clock.advance(0.25)
            seen.append(self.probe())
        return seen


@pytest.fixture
def watched() -> Watched:
    found = Watched()
    assert found.probe() is None
    return found


def test_a_process_whose_name_is_not_held_is_gone(watched: Watched) -> None:
    watched.beats = None
    assert watched.probe() == Gone("p")


def test_a_process_without_heartbeats_for_a_lease_is_stalled_until_the_next_one(
    watched: Watched,
) -> None:
    assert set(watched.look_for(LEASE_S - 0.25)) == {None}
    assert set(watched.look_for(1.0)) == {Stalled("p", 0.0)}
    watched.beats = 1
    assert set(watched.look_for(LEASE_S - 0.25)) == {None}


def test_a_process_with_heartbeats_within_its_lease_is_never_stalled(watched: Watched) -> None:
    for beat in range(20):
        watched.beats = beat
        assert set(watched.look_for(LEASE_S - 0.25)) == {None}


def test_the_time_in_which_a_probe_blocks_does_not_count(watched: Watched) -> None:
    watched.takes_s = 60.0
    assert watched.probe() is None
    assert set(watched.look_for(2.0)) == {None}


def test_the_time_around_a_failed_probe_does_not_count(watched: Watched) -> None:
    for _ in range(20):
        watched.clock.advance(0.7)
        watched.fails = True
        with pytest.raises(BackendUnavailable):
            watched.probe()
        watched.fails = False
        watched.clock.advance(0.7)
        assert watched.probe() is None
    assert Stalled("p", 0.0) in watched.look_for(LEASE_S)


@pytest.mark.parametrize("stopped_s", [LEASE_S, 1.9 * LEASE_S, 600.0])
def test_a_process_that_was_stopped_itself_does_not_take_the_other_for_stalled(
    watched: Watched, stopped_s: float
) -> None:
    watched.probe()
    watched.clock.advance(stopped_s)
    assert watched.probe() is None
    watched.beats = 1
    assert watched.probe() is None


def test_a_process_that_was_not_probed_for_long_is_forgotten(watched: Watched) -> None:
    assert set(watched.look_for(LEASE_S - 0.5)) == {None}
    watched.clock.advance(600)
    assert set(watched.look_for(LEASE_S - 0.25)) == {None}
