"""The demo runs as documented, and its audit finds each broken promise."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.demo.audit import audit_rows
from tailrace.demo.consumer import received
from tailrace.demo.endpoint.audit import endpoint_rows
from tailrace.demo.endpoint.server import EndpointFiles
from tailrace.demo.play import MARK
from tailrace.demo.report import Row
from tailrace.demo.sinks import sink_rows
from tailrace.demo.topic_act import COUNTS
from tailrace.demo.workload import Workload
from tailrace.operations.audit import read_audit

# One process runs the demo, and all tests check its result.
pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(300)]

WORKLOAD = Workload(4_000)
DELIVERIES = 1_200
SALES = 2_000
WITH_SPARK = "from tailrace.cli import main; main()"
WITHOUT_SPARK = f"import sys; sys.modules['pyspark'] = None; {WITH_SPARK}"
WITHOUT_HTTP = f"import sys; sys.modules['aiohttp'] = None; {WITHOUT_SPARK}"


def play(
    directory: Path, orders: int = WORKLOAD.orders, program: str = WITHOUT_SPARK
) -> subprocess.CompletedProcess[str]:
    counts = ("--orders", str(orders), "--deliveries", str(DELIVERIES), "--sales", str(SALES))
    return subprocess.run(
        [sys.executable, "-c", program, "demo", *counts, "--directory", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A demo that ran over files of an earlier one; its directory, stdout and stderr."""
    directory = tmp_path_factory.mktemp("demo") / "demo-data"
    directory.mkdir()
    (directory / MARK).touch()
    (directory / "left by an earlier demo").touch()
    done = play(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, done.stdout, done.stderr


@pytest.fixture
def hub(played: tuple[Path, str, str], tmp_path: Path) -> Path:
    """A copy of the files of the demo, which a test may damage."""
    return Path(shutil.copytree(played[0], tmp_path / "demo-data"))


def broken(rows: list[Row]) -> list[str]:
    return [row.guarantee.split(",")[0] for row in rows if not row.held]


def deliver(hub: Path, line: str) -> None:
    """Record that a consumer received one more order, after all others."""
    with (hub / "received" / "more").open("a") as notes:
        notes.write(line.format(later=time.monotonic_ns()) + "\n")


def test_every_promise_of_the_table_is_kept(played: tuple[Path, str, str]) -> None:
    _, table, _ = played
    assert table.count("  held\n") == 16
    assert "BROKEN" not in table


def test_with_spark_every_promise_is_kept_too(tmp_path: Path) -> None:
    done = play(tmp_path / "demo-data", orders=1_000, program=WITH_SPARK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on the engine spark" in done.stderr
    assert done.stdout.count("  held\n") == 16


def test_without_the_extra_http_the_demo_says_so_and_skips_the_endpoint(tmp_path: Path) -> None:
    done = play(tmp_path / "demo-data", orders=1_000, program=WITHOUT_HTTP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The endpoint act is skipped" in done.stderr
    assert "pip install 'tailrace[http]'" in done.stderr
    assert "web orders" not in done.stdout.lower()
    assert done.stdout.count("  held\n") == 10


def test_without_spark_the_demo_says_so_and_runs_on_the_direct_engine(
    played: tuple[Path, str, str],
) -> None:
    _, _, progress = played
    assert (
        "The pipeline runs on the direct engine instead of Spark: cannot import Spark" in progress
    )
    assert "on the engine direct" in progress


def test_without_a_terminal_events_are_printed_as_plain_lines(
    played: tuple[Path, str, str],
) -> None:
    _, _, progress = played
    assert [line.split()[0] for line in progress.splitlines() if line.startswith("  ")] == [
        *("scaled:", "kill", "kill", "scaled:"),
        *("503:", "$", "BLOCKED", "behind", "last", "owner", "retry", "skip"),
        *("SIGSTOP:", "again:", "SIGCONT:", "$", "fixed:"),
        *("failed:", "others:", "$", "stopped:", "$"),
    ]
    for stage in ("pushing", "consuming", "posting", "writing"):
        assert f"{stage:<9} 100 %" in progress
    assert "\r" not in progress


def test_interventions_of_the_operator_are_audited(played: tuple[Path, str, str]) -> None:
    directory, _, progress = played
    lines = (line.partition("pipeline ") for line in progress.splitlines() if line[:3] == "  $")
    retried, acknowledged = (command for _, found, command in lines if found)
    assert retried == "retry shops/sqlite --one-at-a-time"
    with tailrace.open(directory) as hub:
        entries = read_audit(hub, "shops/sqlite", 10)
        (redelivered,) = read_audit(hub, "crm", 10)
    assert [entry.command for entry in entries] == [
        "pipeline retry --one-at-a-time",
        "pipeline ack",
    ]
    assert acknowledged.endswith(f"--reason '{entries[1].reason}'")
    assert f"dlq crm redeliver --key w005 --reason '{redelivered.reason}'" in progress


def test_the_write_of_the_worker_that_was_frozen_is_refused(played: tuple[Path, str, str]) -> None:
    _, _, progress = played
    (woken,) = (line for line in progress.splitlines() if line.startswith("  SIGCONT:"))
    assert "has a newer owner" in woken
    assert "nothing was written" in woken


def test_every_command_that_the_demo_suggests_works(played: tuple[Path, str, str]) -> None:
    _, table, _ = played
    commands = [line.strip() for line in table.splitlines() if line.startswith("  tailrace ")]
    assert len(commands) == 8
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


def test_files_of_an_earlier_demo_are_removed(played: tuple[Path, str, str]) -> None:
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


def test_an_untouched_demo_passes_another_audit(hub: Path) -> None:
    assert broken(audit_rows(hub, WORKLOAD, COUNTS)) == []
    assert broken(endpoint_rows(hub)) == []
    assert broken(sink_rows(hub, 0)) == []


def test_a_receipt_for_an_order_that_is_not_there_breaks_a_promise(hub: Path) -> None:
    (hub / "receipts" / "more").write_text("c0001 9999 orders/0.0@0\n")
    assert broken(audit_rows(hub, WORKLOAD, COUNTS)) == [
        "orders found at the position of their receipt"
    ]


def test_an_order_stored_again_breaks_a_promise(hub: Path) -> None:
    deliver(hub, "c0001 1 orders/2.0@999999 0 {later} 0")
    assert broken(audit_rows(hub, WORKLOAD, COUNTS)) == ["orders stored exactly once"]


def test_an_order_after_a_later_one_breaks_a_promise(hub: Path) -> None:
    deliver(hub, "c0001 9001 orders/2.0@999998 0 {later} 0")
    deliver(hub, "c0001 9000 orders/2.0@999999 0 {later} 0")
    more = Workload(WORKLOAD.orders + 2)
    assert broken(audit_rows(hub, more, COUNTS)) == ["customers consumed in order"]


def test_an_order_redelivered_without_a_mark_breaks_a_promise(hub: Path) -> None:
    first = received(hub)[0]
    again = f"{first.customer} {first.number} {first.position} {first.timestamp_ms}"
    deliver(hub, again + " {later} 0")
    assert broken(audit_rows(hub, WORKLOAD, COUNTS)) == ["orders redelivered after kill -9"]


def test_an_order_that_was_never_delivered_breaks_promises(hub: Path) -> None:
    lost = received(hub)[0]  # also where it was redelivered
    order = f"{lost.customer} {lost.number} "
    for notes in (hub / "received").iterdir():
        lines = notes.read_text().splitlines(keepends=True)
        notes.write_text("".join(line for line in lines if not line.startswith(order)))
    assert "orders stored exactly once" in broken(audit_rows(hub, WORKLOAD, COUNTS))


def test_an_order_that_the_endpoint_accepted_again_breaks_promises(hub: Path) -> None:
    log = EndpointFiles(hub).log
    accepted = next(line for line in log.read_text().splitlines() if line.endswith(" 200 0"))
    with log.open("a") as file:
        file.write(f"{time.monotonic_ns()} {accepted.partition(' ')[2]}\n")
    assert broken(endpoint_rows(hub)) == [
        "web orders accepted by the endpoint exactly once",
        "customers accepted in order",
        "orders posted again after the freeze",
    ]


def test_an_order_that_the_endpoint_never_accepted_breaks_a_promise(hub: Path) -> None:
    log = EndpointFiles(hub).log
    lines = log.read_text().splitlines(keepends=True)
    lost = next(f" {each.customer} {each.number} " for each in EndpointFiles(hub).requests())
    log.write_text("".join(line for line in lines if lost not in line))
    assert "web orders accepted by the endpoint exactly once" in broken(endpoint_rows(hub))


def test_a_topic_that_was_not_scaled_breaks_a_promise(hub: Path) -> None:
    assert broken(audit_rows(hub, WORKLOAD, (*COUNTS, 16))) == [
        "partition counts used: 4 -> 12 -> 8 -> 16"
    ]


def test_a_sale_twice_in_the_database_breaks_a_promise(hub: Path) -> None:
    with sqlite3.connect(hub / "sales.db") as database:
        database.execute("INSERT INTO sales SELECT * FROM sales LIMIT 1")
    assert broken(sink_rows(hub, 0)) == ["sales written to SQLite exactly once"]


def test_a_sale_that_the_database_lost_breaks_two_promises(hub: Path) -> None:
    with sqlite3.connect(hub / "sales.db") as database:
        database.execute("DELETE FROM sales WHERE rowid = 1")
    assert broken(sink_rows(hub, 0)) == [
        "sales written to SQLite exactly once",
        "sales skipped in SQLite",
    ]


def test_a_missing_parquet_file_breaks_a_promise(hub: Path) -> None:
    next(hub.glob("parquet/*/*.parquet")).unlink()
    assert broken(sink_rows(hub, 0)) == ["sales written to Parquet exactly once"]


def test_a_shop_whose_sales_are_in_another_order_breaks_a_promise(hub: Path) -> None:
    file = hub / "shops" / "rome.jsonl"
    first, second, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([second, first, *rest]))
    assert broken(sink_rows(hub, 0)) == ["shops with all sales in order in the topic"]


def test_a_sale_that_was_never_read_breaks_every_promise(hub: Path) -> None:
    with (hub / "shops" / "rome.jsonl").open("ab") as file:
        file.write(b'{"shop":"rome","number":9000,"customer":"c1","total":1.0}\n')
    assert len(broken(sink_rows(hub, 0))) == 5


def test_a_master_that_cannot_be_reached_ends_the_demo_before_it_starts(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WITH_SPARK, "demo", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(
        [*program, "--master", "spark://127.0.0.1:1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 1
    assert "cannot reach the Spark master spark://127.0.0.1:1" in done.stderr
    assert not (tmp_path / "demo").exists()
