"""A process killed at any instant: reported pushes are stored, and no transaction in part."""

from __future__ import annotations

import os
import random
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.backend.embedded import EmbeddedBackend, folding, writer
from tests.integration import traffic
from tests.integration.traffic import Audit, Begun, Traffic
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report

pytestmark = pytest.mark.part("log")

ROUNDS_PER_HUB = 10
OPEN_S = 5.0
POINTS = ("locked", "placed", "written", "commit-locked", "applied", "commit")
POINTS_BEHIND = ("committed", "fold-written", "folded")
POINTS_OF_A_SWITCH = ("commit-locked", "applied", "commit", "committed")


def _audit(directory: Path, audit: Audit, name: str) -> list[str]:
    """Open the hub again, compare, and append to every partition at once."""
    with closing(EmbeddedBackend.open(directory, lock_timeout_s=OPEN_S)) as backend:
        violations = list(audit.violations(backend))
        audit.append_everywhere(backend, name)
        return violations + list(audit.violations(backend))


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_a_kill_at_any_instant_loses_no_push_and_leaves_none_in_part(
    sync: str, tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    kills = count("kills", test=15, soak=250)
    seed = random.randrange(10**6)
    violations = []
    for number in range(kills):
        round_seed = seed + number
        chance = random.Random(round_seed)
        if number % ROUNDS_PER_HUB == 0:
            directory = tmp_path / str(number)
            traffic.make_hub(directory, sync)
            audit = Audit()
        # With another process in the hub, its view of the WAL is trusted; else it is recovered.
        bystander = EmbeddedBackend.open(directory) if chance.random() < 0.5 else None
        segment_bytes = chance.choice(traffic.SEGMENT_BYTES)
        threads = chance.choice((1, 3))
        child = Child(traffic.run, Traffic(directory, sync, round_seed, segment_bytes, threads))
        assert child.next_report() == "started"
        audit.record(child.next_report() for _ in range(chance.randrange(30)))
        audit.record(child.reports_for(chance.uniform(0.0, 0.01)))
        audit.record(child.kill())
        assert child.exit_code == -9
        found = _audit(directory, audit, f"after-{number}")
        violations += [f"seed {round_seed}: {violation}" for violation in found]
        if bystander is not None:
            bystander.close()
    record_evidence(
        "log", f"kill -9 at random instants, sync={sync}", kills, [seed], len(violations)
    )
    assert violations == []
    assert any(tmp_path.glob("*/topics/*/*/*.index")), "nothing was folded"
    assert any(tmp_path.glob("*/topics/*/1.*/*.log")), "nothing was switched"


@pytest.mark.parametrize("segment_bytes", traffic.SEGMENT_BYTES)
@pytest.mark.parametrize("sync", ["batch", "none"])
@pytest.mark.parametrize("point", [*POINTS, "synced", *POINTS_BEHIND])
def test_a_kill_at_each_point_of_an_append_leaves_it_whole_or_not_at_all(
    point: str, sync: str, segment_bytes: int, tmp_path: Path
) -> None:
    if point == "synced" and sync == "none":
        point = "written"
    traffic.make_hub(tmp_path, sync)
    child = Child(traffic.run, Traffic(tmp_path, sync, 7, segment_bytes, kill_at=point))
    reports = list(child.rest())
    assert child.exit_code == -9
    last = reports[-1]
    assert isinstance(last, Begun)
    audit = Audit()
    audit.record(reports)
    with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=OPEN_S)) as backend:
        assert list(audit.violations(backend)) == []
        stored = {value.split(b":")[0].decode() for value in audit.seen.values()}
        assert (last.transaction in stored) == (point in POINTS_BEHIND)
        audit.append_everywhere(backend, "after")
        assert list(audit.violations(backend)) == []


@pytest.mark.parametrize("point", ["fold-written", "folded"])
def test_folding_continues_after_one_that_a_kill_interrupted(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FOLD_ABOVE", traffic.FOLD_ABOVE)
    monkeypatch.setattr(folding, "FOLD_COUNT", traffic.FOLD_COUNT)
    traffic.make_hub(tmp_path, "none")
    child = Child(traffic.run, Traffic(tmp_path, "none", 7, 2**20, kill_at=point))
    audit = Audit()
    audit.record(child.rest())
    assert child.exit_code == -9
    with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=OPEN_S)) as backend:
        for number in range(4 * traffic.FOLD_COUNT):
            audit.append_everywhere(backend, f"after-{number}")
    assert _audit(tmp_path, audit, "last") == []


def _switch_and_die(report: Report, directory: Path, point: str) -> None:
    """Child: switch to the next storage topic, and be killed at the point."""

    def reach(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    traffic.switch(EmbeddedBackend.open(directory, reach=reach))


@pytest.mark.parametrize("sync", ["batch", "none"])
@pytest.mark.parametrize("point", POINTS_OF_A_SWITCH)
def test_a_kill_at_each_point_of_a_switch_leaves_it_whole_or_not_at_all(
    point: str, sync: str, tmp_path: Path
) -> None:
    traffic.make_hub(tmp_path, sync)
    child = Child(_switch_and_die, tmp_path, point)
    assert list(child.rest()) == []
    assert child.exit_code == -9
    audit = Audit(switched=int(point == "committed"))
    with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=OPEN_S)) as backend:
        assert traffic.current_storage(backend) == audit.switched
        assert list(audit.violations(backend)) == []
        audit.append_everywhere(backend, "after")
        assert list(audit.violations(backend)) == []
