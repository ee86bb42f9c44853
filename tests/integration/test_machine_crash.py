"""A simulated machine crash under `sync="none"`: bytes lost, commits rolled back, a new boot.

Acknowledged records may be lost, and are then reported. No offset and no epoch that was ever
returned is used again.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.backend.contract import Change, Transaction, raise_fence
from tailrace.backend.embedded import EmbeddedBackend, folding, writer
from tailrace.errors import Fenced, OutOfRange, Sealed
from tailrace.message import Partition
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.records import P0, P1, P2, TOPIC, append, create, read, records, values

pytestmark = pytest.mark.part("log")

INCARNATION = 2**32
DATABASE = ("hub.db", "hub.db-wal")


def _open(
    directory: Path, boot: str, sync: str = "none", segment_bytes: int = 2**30
) -> EmbeddedBackend:
    return EmbeddedBackend.open(directory, sync=sync, boot=boot, segment_bytes=segment_bytes)


def _save(directory: Path, to: Path) -> None:
    """Save the database as it is now, for a later simulated crash."""
    to.mkdir(exist_ok=True)
    for name in DATABASE:
        shutil.copyfile(directory / name, to / name)


def _roll_back(directory: Path, saved: Path) -> None:
    for name in DATABASE:
        shutil.copyfile(saved / name, directory / name)
    (directory / "hub.db-shm").unlink()


def _file(directory: Path, partition: Partition, ending: str = ".log") -> Path:
    """Return the newest segment file of a partition."""
    here = f"{partition.topic}/{partition.storage}.{partition.number}-*/*{ending}"
    return max((directory / "topics").glob(here))


def test_lost_bytes_become_gaps_that_are_reported(tmp_path: Path) -> None:
    with closing(_open(tmp_path, "first")) as backend:
        create(backend)
        for value in (b"a", b"b", b"c" * 100, b"d" * 100):
            append(backend, P0, value, value)
        append(backend, P1, b"whole")
        append(backend, P2, b"gone")
    os.truncate(_file(tmp_path, P0), 250)
    _file(tmp_path, P2).unlink()
    with closing(_open(tmp_path, "second")) as backend:
        assert backend.info.incarnation == 2
        lost = [gap.split(" did not survive")[0] for gap in backend.info.gaps]
        assert lost == [f"{P0}@4 to @5", f"{P0}@6 to @7", f"{P2}@0 to @0"]
        assert values(backend, P0) == [b"a", b"a", b"b", b"b"]
        assert values(backend, P1) == [b"whole"]
        assert values(backend, P2) == []
        assert backend.log.bounds(P0).end == 8
        for partition in (P0, P1, P2):
            assert append(backend, partition, b"next").start == INCARNATION
        assert [row.offset for row in read(backend, P0)] == [0, 1, 2, 3, INCARNATION]
        assert backend.log.amount(P0).records == backend.log.amount(P0, 0, 2 * INCARNATION).records
        assert [backend.log.amount(each).records for each in (P0, P1, P2)] == [5, 2, 1]
        assert values(backend, P2) == [b"next"]
    with closing(_open(tmp_path, "second")) as backend:
        assert backend.info.incarnation == 2
        assert append(backend, P0, b"again").start == INCARNATION + 1


def test_zeroed_pages_become_gaps_and_the_records_around_them_are_read(tmp_path: Path) -> None:
    with closing(_open(tmp_path, "first")) as backend:
        create(backend)
        for number in range(9):
            append(backend, P0, b"%d" % number * 2000)
    with _file(tmp_path, P0).open("r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))
    with closing(_open(tmp_path, "second")) as backend:
        assert [gap.split(" ")[0] for gap in backend.info.gaps] == [
            f"{P0}@{offset}" for offset in (2, 3, 4)
        ]
        assert b"".join(value[:1] for value in values(backend, P0)) == b"015678"
        assert [found for _, found in backend.log.verify(P0) if found] == []


def test_gaps_are_reported_by_every_open_until_they_are_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(_open(tmp_path, "first")) as backend:
        create(backend)
        append(backend, P0, b"lost")
    os.truncate(_file(tmp_path, P0), 3)
    for _ in range(2):
        with closing(_open(tmp_path, "second")) as backend:
            assert [gap.split(" ")[0] for gap in backend.info.gaps] == [f"{P0}@0"]
            assert caplog.record_tuples == [("tailrace.hub", logging.WARNING, backend.info.gaps[0])]
    with closing(_open(tmp_path, "second")) as backend:
        backend.accept_gaps()
    with closing(_open(tmp_path, "second")) as backend:
        assert backend.info.gaps == ()


def test_lost_positions_are_rebuilt(tmp_path: Path) -> None:
    expected = [b"%d" % number for number in range(200)]
    with closing(_open(tmp_path, "first")) as backend:
        create(backend)
        append(backend, P0, *expected)
    os.truncate(_file(tmp_path, P0, ".positions"), 101)
    with closing(_open(tmp_path, "second")) as backend:
        assert backend.info.gaps == ()
        assert values(backend, P0) == expected


def test_folded_batches_survive_since_they_were_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FOLD_ABOVE", 4)
    monkeypatch.setattr(folding, "FOLD_COUNT", 4)
    synced: list[int] = []
    with closing(_open(tmp_path, "first")) as backend:
        create(backend)
        disk = backend._opened().disk

        def sync(descriptor: int) -> None:
            synced.append(os.fstat(descriptor).st_ino)

        monkeypatch.setattr(disk, "sync", sync)
        for _ in range(5):
            append(backend, P0, b"x")
        assert _file(tmp_path, P0).stat().st_ino in synced
        assert _file(tmp_path, P0, ".index").stat().st_ino in synced


def test_rolled_back_commits_never_give_an_offset_or_an_epoch_twice(tmp_path: Path) -> None:
    hub, saved = tmp_path / "hub", tmp_path / "saved"
    with closing(_open(hub, "first")) as backend:
        create(backend)
        append(backend, P0, b"kept")
        old_epoch = raise_fence(backend.store, "owner").epoch
        _save(hub, saved)
        lost = [append(backend, P0, b"lost"), append(backend, P1, b"lost", b"lost")]
        lost_fence = raise_fence(backend.store, "owner")
    _roll_back(hub, saved)
    with closing(_open(hub, "second")) as backend:
        assert values(backend, P0) == [b"kept"]
        assert values(backend, P1) == []
        for landed in lost:
            with pytest.raises(OutOfRange):
                backend.log.read(landed.partition, landed.end, 1000)
            assert append(backend, landed.partition, b"new").start >= INCARNATION
        fence = raise_fence(backend.store, "owner")
        assert fence.epoch > lost_fence.epoch > old_epoch
        with pytest.raises(Fenced):
            backend.commit(Transaction(((P0, records(b"stale")),), fence=lost_fence))
        backend.commit(Transaction(((P0, records(b"held")),), fence=fence))
        assert values(backend, P0) == [b"kept", b"new", b"held"]


def test_an_incarnation_that_is_lost_to_the_next_crash_gives_no_offset_twice(
    tmp_path: Path,
) -> None:
    hub, saved = tmp_path / "hub", tmp_path / "saved"
    with closing(_open(hub, "first")) as backend:
        create(backend)
        append(backend, P0, b"kept")
    with closing(_open(hub, "second")) as backend:
        _save(hub, saved)
        landed = append(backend, P0, b"lost")
        assert landed.start == INCARNATION
    _roll_back(hub, saved)
    with closing(_open(hub, "third")) as backend:
        assert append(backend, P0, b"new").start == 2 * INCARNATION
        assert values(backend, P0) == [b"kept", b"new"]


def test_a_sealed_partition_stays_as_it_was(tmp_path: Path) -> None:
    with closing(_open(tmp_path, "first")) as backend:
        create(backend)
        append(backend, P0, b"a")
        backend.store.commit(Change(seal=(TOPIC,)))
        before = backend.log.bounds(P0)
    with closing(_open(tmp_path, "second")) as backend:
        assert backend.log.bounds(P0) == before
        with pytest.raises(Sealed):
            append(backend, P0, b"b")


def test_segments_that_the_crash_ended_know_their_size(tmp_path: Path) -> None:
    with closing(_open(tmp_path, "first")) as backend:
        create(backend)
        append(backend, P0, b"a", b"b")
        (before,) = backend.log.segments(P0)
    with closing(_open(tmp_path, "second")) as backend:
        append(backend, P0, b"c")
        ended, active = backend.log.segments(P0)
        assert ended == before._replace(active=False)
        assert (active.base, active.active) == (INCARNATION, True)


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_under_either_policy_a_new_boot_starts_a_new_incarnation(sync: str, tmp_path: Path) -> None:
    with closing(_open(tmp_path, "first", sync)) as backend:
        create(backend)
        append(backend, P0, b"a")
    with closing(_open(tmp_path, "second", sync)) as backend:
        assert (backend.info.incarnation, backend.info.gaps) == (2, ())
        assert append(backend, P0, b"b").start == INCARNATION
        assert values(backend, P0) == [b"a", b"b"]


def test_crashes_at_random_points_give_no_offset_twice_and_serve_nothing_wrong(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    crashes = count("machine_crashes", test=20, soak=200)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    hub, saved = tmp_path / "hub", tmp_path / "saved"
    given: dict[tuple[Partition, int], bytes] = {}
    epochs = [0]
    violations = 0
    for boot in range(crashes):
        segment_bytes = chance.choice((64, 500, 2**20))
        with closing(_open(hub, str(boot), segment_bytes=segment_bytes)) as backend:
            if boot == 0:
                create(backend)
            epoch = raise_fence(backend.store, "owner").epoch
            violations += epoch <= max(epochs)
            saved_at = chance.randrange(12)
            for number in range(12):
                if number == saved_at:
                    _save(hub, saved)
                epochs.append(raise_fence(backend.store, "owner").epoch)
                value = b"%d-%d" % (boot, number)
                landed = append(backend, chance.choice((P0, P1, P2)), value)
                violations += (landed.partition, landed.start) in given
                given[landed.partition, landed.start] = value
        if chance.random() < 0.7:
            _roll_back(hub, saved)
        if chance.random() < 0.7:
            # Only what was written in this boot can be lost: the rest was read from the disk.
            file = _file(hub, landed.partition)
            os.truncate(file, chance.randrange(file.stat().st_size + 1))
        with closing(_open(hub, str(boot + 1))) as backend:
            for partition in (P0, P1, P2):
                violations += sum(
                    given.get((partition, row.offset)) != row.value
                    for row in read(backend, partition)
                )
    record_evidence("log", "crashes of the machine under none", crashes, [seed], violations)
    assert violations == 0, f"seed {seed}"
