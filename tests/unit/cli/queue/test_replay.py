"""`tailrace queue replay`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tailrace
from tailrace.queue.replay.lifecycle import NewReplay, create_replay
from tests.support.command_line import CommandLine

BEFORE, WITHIN, AFTER = "2026-01-31T07:59Z", "2026-01-31T08:00Z", "2026-01-31T09:00Z"
EIGHT_MS = 1_769_846_400_000


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The queue jobs, with three messages from eight o'clock on, a minute apart."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        queue = hub.queue("jobs", int, shards=2)
        for number in range(3):
            queue.push(number, key="c7", timestamp=EIGHT_MS + 60_000 * number)
    return cli


def inserted(cli: CommandLine) -> int:
    total: int = cli.json("queue", "stats", "jobs")["total"]["inserted"]
    return total


def test_the_messages_of_a_range_are_pushed_again(cli: CommandLine) -> None:
    done = cli.run("queue", "replay", "jobs", "--from", WITHIN, "--to", "2026-01-31T08:02Z")
    assert ": done, 2 replayed" in done.stdout
    assert inserted(cli) == 5


def test_a_handler_is_called_and_the_queue_is_not_touched(cli: CommandLine, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    body = f"open({str(seen)!r}, 'a').write(f'{{job.value}} {{job.replay}}\\n')"
    (tmp_path / "replayed.py").write_text(f"def handle(job):\n    {body}\n")
    handler = f"{tmp_path / 'replayed.py'}:handle"
    options = ("--from", WITHIN, "--to", AFTER, "--id", "again", "--handler", handler)
    assert cli.json("queue", "replay", "jobs", *options)["done"] == 3
    assert seen.read_text() == "0 again\n1 again\n2 again\n"
    assert inserted(cli) == 3


def test_a_range_without_messages_is_done_at_once(cli: CommandLine) -> None:
    report = cli.json("queue", "replay", "jobs", "--from", BEFORE, "--to", BEFORE)
    assert (report["state"], report["done"]) == ("done", 0)


def test_replays_are_listed_and_audited(cli: CommandLine) -> None:
    cli.run("queue", "replay", "jobs", "--from", WITHIN, "--to", AFTER, "--id", "again")
    [row] = cli.json("queue", "replay", "jobs", "--list")
    assert (row["id"], row["state"], row["has_handler"], row["done"]) == ("again", "done", False, 3)
    assert "again" in cli.run("queue", "replay", "jobs", "--list").stdout
    assert "began replay again of 2026-01-31 08:00:00Z" in cli.run("audit").stdout


def create(cli: CommandLine, id: str) -> None:
    """Create a replay of all messages on which nobody works, as after a kill."""
    with tailrace.open(cli.hub, sync="none") as hub:
        new = NewReplay(EIGHT_MS, EIGHT_MS + 3_600_000, False, "operator", id)
        create_replay(hub.backend, "jobs", new, EIGHT_MS)


def test_a_replay_that_was_interrupted_is_continued(cli: CommandLine) -> None:
    create(cli, "again")
    [row] = cli.json("queue", "replay", "jobs", "--list")
    assert (row["state"], row["left"]) == ("running", 3)
    assert ": done, 3 replayed" in cli.run("queue", "replay", "jobs", "--resume", "again").stdout
    assert inserted(cli) == 6


def test_the_status_reports_a_replay_on_which_no_process_works(cli: CommandLine) -> None:
    create(cli, "again")
    found = cli.json("status", status=4)["problems"]
    assert {
        "subject": "queue jobs",
        "what": "replay again UNATTENDED: 3 messages left, no process works on it",
        "remedy": "tailrace queue replay jobs --resume again",
    } in found
    cli.run("queue", "replay", "jobs", "--resume", "again")
    assert "replay again" not in cli.run("status", status=4).stdout


def test_the_status_does_not_report_a_replay_on_which_a_process_works(cli: CommandLine) -> None:
    with tailrace.open(cli.hub, sync="none") as hub:
        over = threading.Event()
        replay = hub.queue("jobs").replay(EIGHT_MS, handler=lambda job: over.wait(60))
        with replay:
            assert "replay" not in cli.run("status", status=4).stdout
            over.set()


def test_dead_letters_of_a_replay_are_reported_listed_and_redelivered(
    cli: CommandLine, tmp_path: Path
) -> None:
    name = "tailrace.replay.jobs.again"
    file, present = tmp_path / "replayed_again.py", tmp_path / "present"
    file.write_text(
        f"import pathlib, tailrace\ndef handle(job):\n    if job.value == 1 and "
        f"not pathlib.Path({str(present)!r}).exists():\n        raise tailrace.Reject('absent')\n"
    )
    handler = ("--handler", f"{file}:handle")
    options = ("--from", WITHIN, "--to", AFTER, "--id", "again", *handler)
    printed = cli.run("queue", "replay", "jobs", *options).stdout
    assert f": done, 1 replayed, 2 dead letters; to list them: tailrace dlq {name} list" in printed
    assert "Reject: absent" in cli.run("dlq", name, "list").stdout
    assert "replay again: 2 pending dead letters" in cli.run("status", status=4).stdout

    present.touch()
    cli.run("dlq", name, "redeliver", "--all", status=3)  # Nobody works on the replay.
    assert (
        "a request for dead letters, no process works on it" in cli.run("status", status=4).stdout
    )
    resumed = cli.run("queue", "replay", "jobs", "--resume", "again", *handler).stdout
    assert ": done, 3 replayed\n" in resumed
    assert "replay again" not in cli.run("status", status=4).stdout


def test_a_replay_is_cancelled_once(cli: CommandLine) -> None:
    create(cli, "again")
    assert (
        ": cancelled, 0 replayed" in cli.run("queue", "replay", "jobs", "--cancel", "again").stdout
    )
    cli.run("queue", "replay", "jobs", "--cancel", "again")
    assert cli.run("audit").stdout.count("cancelled replay again") == 1
    assert inserted(cli) == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "one of --from, --resume, --cancel and --list is needed"),
        (("--from", WITHIN, "--list"), "one of --from, --resume, --cancel and --list is needed"),
        (("--list", "--to", AFTER), "--to needs --from"),
        (("--resume", "again", "--id", "x"), "--id needs --from"),
        (("--cancel", "again", "--handler", "m:f"), "--handler needs --from or --resume"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    cli: CommandLine, options: tuple[str, ...], problem: str
) -> None:
    assert problem in cli.run("queue", "replay", "jobs", *options, status=2).stderr


@pytest.mark.parametrize(
    ("options", "status", "problem"),
    [
        (("--from", "noon"), 2, "--from is 'noon'"),
        (("--from", AFTER, "--to", WITHIN), 2, "not after the end"),
        (("--resume", "agin"), 1, "no replay 'agin'"),
        (("--cancel", "agin"), 1, "no replay 'agin'"),
    ],
)
def test_what_cannot_be_replayed_is_an_error(
    cli: CommandLine, options: tuple[str, ...], status: int, problem: str
) -> None:
    assert problem in cli.run("queue", "replay", "jobs", *options, status=status).stderr
