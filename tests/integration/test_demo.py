"""The demo runs as shown, and tells when a promise is broken."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.demo.audit import audited
from tailrace.demo.consuming import seen
from tailrace.demo.load import Load
from tailrace.demo.play import MARK
from tailrace.demo.report import Row
from tailrace.demo.sinks import compared
from tailrace.demo.topic_act import COUNTS
from tailrace.operations.audit import read_audit

# One process plays, and all tests look at what it left.
pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(300)]

LOAD = Load(4_000)
SALES = 2_000
WITH_SPARK = "from tailrace.cli import main; main()"
WITHOUT_SPARK = f"import sys; sys.modules['pyspark'] = None; {WITH_SPARK}"


def play(
    directory: Path, orders: int = LOAD.orders, program: str = WITHOUT_SPARK
) -> subprocess.CompletedProcess[str]:
    counts = ("--orders", str(orders), "--sales", str(SALES))
    return subprocess.run(
        [sys.executable, "-c", program, "demo", *counts, "--directory", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A demo that was played where an earlier one had left something; its stdout and stderr."""
    directory = tmp_path_factory.mktemp("demo") / "demo-data"
    directory.mkdir()
    (directory / MARK).touch()
    (directory / "left by an earlier demo").touch()
    done = play(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, done.stdout, done.stderr


@pytest.fixture
def hub(played: tuple[Path, str, str], tmp_path: Path) -> Path:
    """A copy of what the demo left, to do harm to."""
    return Path(shutil.copytree(played[0], tmp_path / "demo-data"))


def broken(rows: list[Row]) -> list[str]:
    return [row.guarantee.split(",")[0] for row in rows if not row.held]


def hand_out(hub: Path, line: str) -> None:
    """Say that a consumer was handed something after everything else."""
    with (hub / "seen" / "more").open("a") as notes:
        notes.write(line.format(later=time.monotonic_ns()) + "\n")


def test_every_promise_of_the_table_is_held(played: tuple[Path, str, str]) -> None:
    _, table, _ = played
    assert table.count("  held\n") == 10
    assert "BROKEN" not in table


def test_with_spark_every_promise_is_held_too(tmp_path: Path) -> None:
    done = play(tmp_path / "demo-data", orders=1_000, program=WITH_SPARK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by the engine spark" in done.stderr
    assert done.stdout.count("  held\n") == 10


def test_without_spark_it_says_so_and_goes_on_by_the_direct_engine(
    played: tuple[Path, str, str],
) -> None:
    _, _, progress = played
    assert "The direct engine takes the place of Spark: Spark cannot be used" in progress
    assert "by the engine direct" in progress


def test_what_happened_is_told_in_plain_lines_where_there_is_no_terminal(
    played: tuple[Path, str, str],
) -> None:
    _, _, progress = played
    assert [line.split()[0] for line in progress.splitlines() if line.startswith("  ")] == [
        *("scaled:", "kill", "kill", "scaled:"),
        *("failed:", "others:", "$", "stopped:", "$"),
    ]
    for stage in ("pushing", "consuming", "writing"):
        assert f"{stage:<8} 100 %" in progress
    assert "\r" not in progress


def test_what_the_operator_did_is_audited(played: tuple[Path, str, str]) -> None:
    directory, _, progress = played
    retried, acknowledged = (
        line.partition("pipeline ")[2] for line in progress.splitlines() if line.startswith("  $")
    )
    assert retried == "retry shops/sqlite --one-at-a-time"
    with tailrace.open(directory) as hub:
        entries = read_audit(hub, "shops/sqlite", 10)
    assert [entry.command for entry in entries] == [
        "pipeline retry --one-at-a-time",
        "pipeline ack",
    ]
    assert acknowledged.endswith(f"--reason '{entries[1].reason}'")


def test_every_command_it_ends_with_works(played: tuple[Path, str, str]) -> None:
    _, table, _ = played
    commands = [line.strip() for line in table.splitlines() if line.startswith("  tailrace ")]
    assert len(commands) == 6
    for command in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"'{sys.executable}' -m {command}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_what_an_earlier_demo_left_is_gone(played: tuple[Path, str, str]) -> None:
    directory, _, _ = played
    assert not (directory / "left by an earlier demo").exists()


def test_a_directory_that_no_demo_made_is_refused_and_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("three years of work")
    done = play(tmp_path)
    assert done.returncode == 1
    assert "was not made by a demo" in done.stderr
    assert precious.read_text() == "three years of work"


def test_too_few_orders_are_refused_before_anything_is_deleted(tmp_path: Path) -> None:
    (tmp_path / MARK).touch()
    done = play(tmp_path, orders=10)
    assert done.returncode == 2
    assert "1,000 or more" in done.stderr
    assert (tmp_path / MARK).exists()


def test_an_untouched_demo_holds_when_it_is_audited_again(hub: Path) -> None:
    assert broken(audited(hub, LOAD, COUNTS)) == []
    assert broken(compared(hub, 0)) == []


def test_a_receipt_for_an_order_that_is_not_there_breaks_a_promise(hub: Path) -> None:
    (hub / "receipts" / "more").write_text("c0001 9999 orders/0.0@0\n")
    assert broken(audited(hub, LOAD, COUNTS)) == ["orders where their receipts say"]


def test_an_order_stored_again_breaks_a_promise(hub: Path) -> None:
    hand_out(hub, "c0001 1 orders/2.0@999999 0 {later} 0")
    assert broken(audited(hub, LOAD, COUNTS)) == ["orders stored exactly once"]


def test_an_order_behind_a_later_one_breaks_a_promise(hub: Path) -> None:
    hand_out(hub, "c0001 9001 orders/2.0@999998 0 {later} 0")
    hand_out(hub, "c0001 9000 orders/2.0@999999 0 {later} 0")
    more = Load(LOAD.orders + 2)
    assert broken(audited(hub, more, COUNTS)) == ["customers served in order by the group"]


def test_an_order_handed_out_again_unmarked_breaks_a_promise(hub: Path) -> None:
    first = seen(hub)[0]
    again = f"{first.customer} {first.number} {first.position} {first.timestamp_ms}"
    hand_out(hub, again + " {later} 0")
    assert broken(audited(hub, LOAD, COUNTS)) == ["orders handed out again over kill -9"]


def test_an_order_that_nobody_was_handed_breaks_promises(hub: Path) -> None:
    notes = max((hub / "seen").iterdir(), key=lambda file: file.stat().st_size)
    lines = notes.read_text().splitlines(keepends=True)
    notes.write_text("".join(lines[:-5]))
    assert "orders stored exactly once" in broken(audited(hub, LOAD, COUNTS))


def test_a_topic_that_was_not_scaled_breaks_a_promise(hub: Path) -> None:
    assert broken(audited(hub, LOAD, (*COUNTS, 16))) == [
        "partition counts that took orders: 4 -> 12 -> 8 -> 16"
    ]


def test_a_sale_twice_in_the_database_breaks_a_promise(hub: Path) -> None:
    with sqlite3.connect(hub / "sales.db") as database:
        database.execute("INSERT INTO sales SELECT * FROM sales LIMIT 1")
    assert broken(compared(hub, 0)) == ["sales in SQLite exactly once"]


def test_a_sale_that_the_database_lost_breaks_two_promises(hub: Path) -> None:
    with sqlite3.connect(hub / "sales.db") as database:
        database.execute("DELETE FROM sales WHERE rowid = 1")
    assert broken(compared(hub, 0)) == [
        "sales in SQLite exactly once",
        "sales left out of SQLite",
    ]


def test_a_parquet_file_that_is_gone_breaks_a_promise(hub: Path) -> None:
    next(hub.glob("parquet/*/*.parquet")).unlink()
    assert broken(compared(hub, 0)) == ["sales in Parquet exactly once"]


def test_a_shop_whose_sales_are_in_another_order_breaks_a_promise(hub: Path) -> None:
    file = hub / "shops" / "rome.jsonl"
    first, second, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([second, first, *rest]))
    assert broken(compared(hub, 0)) == ["shops whose sales the topic has in order"]


def test_a_sale_that_nobody_read_breaks_every_promise(hub: Path) -> None:
    with (hub / "shops" / "rome.jsonl").open("ab") as file:
        file.write(b'{"shop":"rome","number":9000,"customer":"c1","total":1.0}\n')
    assert len(broken(compared(hub, 0))) == 5
