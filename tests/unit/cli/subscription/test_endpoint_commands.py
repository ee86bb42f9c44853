"""`tailrace subscription` with an HTTP endpoint: create, run, update, show and explain."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine
from tests.support.http_endpoint import OK, Answer, HttpEndpoint, Posted, answers

SECRET = "whsec_" + "A" * 32
OTHER = "whsec_" + "B" * 32


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.create_topic("orders", partitions=1)
    return cli


def create(cli: CommandLine, url: str, *options: str, status: int = 0) -> str:
    """Create the subscription crm, and return what the command prints."""
    command = ("subscription", "create", "crm", "--topic", "orders", "--endpoint", url)
    ended = cli.run(*command, *options, status=status)
    return ended.stdout + ended.stderr


def test_an_endpoint_is_created_and_shown_without_its_secret(cli: CommandLine) -> None:
    options = ("--secret", SECRET, "--timeout", "5s", "--retry-statuses", "404,409")
    created = create(cli, "https://crm.example/hook", *options)
    assert created == (
        "crm: delivers orders to https://crm.example/hook, 1 shard;"
        " run a worker: tailrace subscription run crm\n"
    )
    shown = cli.run("subscription", "show", "crm").stdout
    facts = dict(line.split("  ", 1) for line in shown.splitlines() if "  " in line)
    assert facts["endpoint"].strip() == "https://crm.example/hook"
    assert facts["timeout"].strip() == "5s"
    assert facts["secret"].strip().startswith("whsec_… (SHA-256 ")
    assert facts["private addresses"].strip() == "refused"
    assert facts["retried statuses"].strip() == "404, 409"
    assert "no worker runs; start one: tailrace subscription run crm\n" in shown
    explained = cli.run("explain", "crm").stdout
    assert "https://crm.example/hook, timeout 5s, signed by whsec_… (SHA-256 " in explained
    detail = cli.json("subscription", "show", "crm")
    assert detail["settings"]["endpoint"]["retry_statuses"] == [404, 409]
    assert SECRET.removeprefix("whsec_") not in f"{created}{shown}{explained}{detail}"


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("http://127.0.0.1/", (), "has a private address, which is not allowed"),
        ("ftp://crm.example/", (), "is not valid: its scheme is ftp"),
        ("https://ann:hunter2@crm.example/", (), "has a user or a password in its URL"),
        ("https://crm.example/", ("--secret", "hunter2"), "the secret is not valid"),
        ("https://crm.example/", ("--retry-statuses", "4xx"), "--retry-statuses is '4xx'"),
        ("https://crm.example/", ("--timeout", "0s"), "timeout is '0s'"),
    ],
)
def test_a_wrong_option_is_an_error_and_creates_nothing(
    cli: CommandLine, url: str, options: tuple[str, ...], problem: str
) -> None:
    text = create(cli, url, *options, status=2)
    assert problem in text
    assert "hunter2" not in text
    assert cli.json("subscription", "list") == []


def test_a_changed_endpoint_is_audited_without_its_secrets(cli: CommandLine) -> None:
    create(cli, "https://crm.example/hook", "--secret", SECRET)
    update = ("subscription", "update", "crm")
    text = cli.run(*update, "--secret", OTHER, "--timeout", "1s", "--reason", "rotated").stdout
    assert "crm: timeout 30s -> 1s\n" in text
    assert "crm: secret whsec_… (SHA-256 " in text
    text += cli.run(*update, "--secret", "", "--retry-statuses", "404").stdout
    text += cli.run(*update, "--secret", "file:/run/secrets/crm", "--allow-private").stdout
    assert "crm: secret none -> file:/run/secrets/crm\n" in text
    assert "crm: allow private no -> yes\n" in text
    text += cli.run("audit").stdout + cli.run("audit", "-o", "json").stdout
    assert "rotated" in text
    assert all(each.removeprefix("whsec_") not in text for each in (SECRET, OTHER))


def test_a_subscription_with_a_handler_gets_no_endpoint_later(cli: CommandLine) -> None:
    cli.run("subscription", "create", "mailer", "--topic", "orders")
    update = ("subscription", "update", "mailer", "--endpoint", "https://crm.example/")
    assert "mailer calls a handler, which stays so" in cli.run(*update, status=2).stderr


def test_a_worker_delivers_without_a_handler_until_a_signal_comes(cli: CommandLine) -> None:
    def answer(posted: Posted, before: int) -> Answer:
        if posted.body == b"2":
            os.kill(os.getpid(), signal.SIGTERM)
        return answers(422, b"no") if posted.body == b"1" else OK

    with HttpEndpoint(answer) as endpoint:
        create(cli, endpoint.url, "--allow-private", "--on-dead-letter", "continue")
        with tailrace.open(cli.hub, sync="none") as hub:
            hub.topic("orders").push_many([("a", 1), ("a", 2)])
        ended = cli.run("subscription", "run", "crm")
    assert ended.stdout.endswith(" stopped; 1 succeeded, 0 failed, 1 rejected\n")
    assert "HTTP 422: no" in cli.run("dlq", "crm", "list", "--by", "error").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("crm", "os:getcwd"), "crm delivers to https://crm.example/hook, not to a handler"),
        (("crm", "--timeout", "1s"), "timeout is an option of handlers"),
        (("mailer",), "subscription mailer has no endpoint, so its workers call a handler"),
    ],
)
def test_a_handler_belongs_to_a_subscription_without_an_endpoint(
    cli: CommandLine, arguments: tuple[str, ...], problem: str
) -> None:
    create(cli, "https://crm.example/hook")
    cli.run("subscription", "create", "mailer", "--topic", "orders")
    assert problem in cli.run("subscription", "run", *arguments, status=2).stderr


def test_a_secret_that_cannot_be_read_is_an_error_before_anything_is_delivered(
    cli: CommandLine, tmp_path: Path
) -> None:
    create(cli, "https://crm.example/hook", "--secret", f"file:{tmp_path}/missing")
    error = cli.run("subscription", "run", "crm", status=2).stderr
    assert f"the secret file:{tmp_path}/missing cannot be read: No such file" in error


def test_without_aiohttp_the_error_says_what_to_install(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cli, "https://crm.example/hook")
    for name in ("client", "deliveries"):
        monkeypatch.delitem(sys.modules, f"tailrace.subscription.endpoint.{name}", raising=False)
    monkeypatch.delattr("tailrace.subscription.endpoint.deliveries", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.setitem(sys.modules, "yarl", None)
    error = cli.run("subscription", "run", "crm", status=1).stderr
    assert "aiohttp, which is not installed · install it: pip install 'tailrace[http]'" in error


def test_what_helps_a_subscription_without_a_worker_is_a_command_without_a_handler(
    cli: CommandLine,
) -> None:
    create(cli, "https://crm.example/hook")
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.topic("orders").push(1, key="a")
    for arguments in (("crm",), ("crm", "--key", "a"), ("orders/0.0@0",)):
        explained = cli.run("explain", *arguments).stdout
        assert "subscription run crm " in explained.replace("\n", " \n")
        assert "MODULE:FUNCTION" not in explained
