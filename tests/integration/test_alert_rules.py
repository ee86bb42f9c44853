"""The alert rules of the docs: each fires and clears, in Prometheus itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import tailrace
from tailrace.telemetry import METRICS
from tests.support.running_command import RunningCommand
from tests.support.scraped import get
from tests.support.servers.prometheus import own_prometheus, program, promtool
from tests.support.servers.shared import Unavailable
from tests.support.waiting import until

pytestmark = [
    pytest.mark.xdist_group("prometheus"),
    pytest.mark.part("subscriptions"),
    pytest.mark.timeout(600),  # The first test may install Prometheus.
]

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
BLOCK = re.compile(r"^```yaml\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = dict(BLOCK.findall(PAGE))
RULES = FILES["tailrace.rules.yml"]
ALERTS = re.findall(r"- alert: (\w+)", RULES)

SHOP = """
import os
from tailrace import App, Delivery, Reject

app = App()

@app.subscription("mailer", topic="orders")
def mail(order: Delivery[int]) -> None:
    if not os.path.exists("mended"):
        raise Reject("the currency is missing")
"""


class Trouble(NamedTuple):
    """Series that make an alert fire, and its labels then."""

    series: dict[str, str]
    labels: dict[str, str]


BAD, RISING = "0x10 {bad}x30 0x60", "0x10 0+{bad}x30 {last}x60"


def gauge(series: str, bad: float, **labels: str) -> Trouble:
    """Return a gauge that is bad for 30 minutes."""
    return Trouble({series: BAD.format(bad=bad)}, labels)


def counter(series: str, **labels: str) -> Trouble:
    """Return a counter that rises for 30 minutes."""
    return Trouble({series: RISING.format(bad=5, last=150)}, labels)


TROUBLES = {
    "TailraceDown": Trouble(
        {'up{job="tailrace",instance="a"}': "1x10 0x30 1x60"}, {"job": "tailrace", "instance": "a"}
    ),
    "TailraceDeadLetters": gauge(
        'tailrace_subscription_backlog_messages{subscription="m",queue="dlq"}', 3, subscription="m"
    ),
    "TailraceOldMessages": gauge(
        'tailrace_subscription_oldest_seconds{subscription="m"}', 400, subscription="m"
    ),
    "TailraceUnownedShards": gauge(
        'tailrace_subscription_unowned_shards{subscription="m"}', 1, subscription="m"
    ),
    "TailracePaused": gauge('tailrace_subscription_paused{subscription="m"}', 1, subscription="m"),
    "TailraceThrottled": gauge(
        'tailrace_subscription_throttled{subscription="m"}', 1, subscription="m"
    ),
    "TailraceCallsFail": Trouble(
        {
            'tailrace_worker_messages_total{subscription="m",outcome="succeeded"}': "0+10x100",
            'tailrace_worker_messages_total{subscription="m",outcome="rejected"}': "0x100",
            'tailrace_worker_messages_total{subscription="m",outcome="failed"}': (
                "0x10 0+5x30 150x60"
            ),
        },
        {"subscription": "m"},
    ),
    "TailraceLateCalls": gauge('tailrace_worker_late_calls{subscription="m"}', 1, subscription="m"),
    "TailraceCommitsFail": counter(
        'tailrace_worker_commit_failures_total{subscription="m"}', subscription="m"
    ),
    "TailraceGroupLag": gauge('tailrace_group_lag_seconds{group="g"}', 400, group="g"),
    "TailraceGroupBlocked": gauge('tailrace_group_blocked_keys{group="g"}', 1, group="g"),
    "TailracePushesFail": counter('tailrace_push_failures_total{topic="t"}', topic="t"),
    "TailraceWriterFailed": gauge(
        'tailrace_writer_state{writer="l/c",state="failed"}', 1, writer="l/c"
    ),
    "TailraceWriterWaits": gauge(
        'tailrace_writer_waiting_seconds{writer="l/c"}', 400, writer="l/c"
    ),
    "TailraceUnreadableRows": counter(
        'tailrace_pipeline_unreadable_rows_total{pipeline="l"}', pipeline="l"
    ),
    "TailraceDiskFull": gauge('tailrace_hub_disk_used_ratio{instance="a"}', 0.95, instance="a"),
    "TailraceWriteAheadLog": gauge('tailrace_hub_wal_bytes{instance="a"}', 2e8, instance="a"),
    "TailraceHubUnread": counter('tailrace_hub_reading_failures_total{instance="a"}', instance="a"),
}


@pytest.fixture(autouse=True, scope="module")
def prometheus() -> None:
    try:
        program("prometheus")
    except Unavailable as reason:
        pytest.skip(f"Prometheus: {reason}")


def annotation(alert: str, name: str, labels: dict[str, str]) -> str:
    """Return an annotation of a rule, as it is for these labels."""
    rule = RULES.partition(f"- alert: {alert}\n")[2].partition("- alert: ")[0]
    found = re.search(rf'^ +{name}: "(.*)"$', rule, re.MULTILINE)
    assert found is not None
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match[1]], found[1])


def test_rules_use_only_metrics_that_are_declared() -> None:
    used = {
        name
        for name in re.findall(r"\btailrace_\w+", RULES)
        if name != "tailrace" and not name.startswith("tailrace_rules")
    }
    assert used
    assert used - METRICS.keys() == set()


def test_every_rule_has_a_trouble_in_which_it_is_tested() -> None:
    assert list(TROUBLES) == ALERTS


def test_the_files_of_the_page_are_valid(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yml"))


@pytest.mark.parametrize("alert", ALERTS)
def test_each_rule_fires_in_its_trouble_and_clears_after_it(alert: str, tmp_path: Path) -> None:
    series, labels = TROUBLES[alert]
    (tmp_path / "tailrace.rules.yml").write_text(RULES)
    annotations = {name: annotation(alert, name, labels) for name in ("summary", "remedy")}
    firing = {"exp_labels": labels, "exp_annotations": annotations}
    tests = {
        "rule_files": ["tailrace.rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "alert_rule_test": [
                    {"eval_time": "9m", "alertname": alert, "exp_alerts": []},
                    {"eval_time": "38m", "alertname": alert, "exp_alerts": [firing]},
                    {"eval_time": "80m", "alertname": alert, "exp_alerts": []},
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    promtool("test", "rules", str(tmp_path / "tests.yml"))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RunningCommand]:
    """A worker that rejects every message until the file `mended` exists."""
    (tmp_path / "shop.py").write_text(SHOP)
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        hub.create_topic("orders", int)
    with RunningCommand(tmp_path, "run", "shop:app", "--metrics", "0") as command:
        yield command


def test_an_alert_of_a_worker_that_prometheus_scrapes_fires_and_clears(
    worker: RunningCommand, tmp_path: Path
) -> None:
    worker.await_output("/metrics")
    found = re.search(r"metrics: (http://(\S+)/metrics)", worker.output)
    assert found is not None
    url, target = found.groups()
    until(lambda: get(url, "/readyz").status == 200)
    server = tmp_path / "prometheus"
    server.mkdir()
    config = FILES["prometheus.yml"].replace("127.0.0.1:9464", target)
    config = config.replace("scrape_interval: 15s", "scrape_interval: 200ms")
    (server / "prometheus.yml").write_text(f"global: {{evaluation_interval: 200ms}}\n{config}")
    (server / "tailrace.rules.yml").write_text(re.sub(r"for: \w+", "for: 0s", RULES))
    with own_prometheus(server) as prometheus, tailrace.open(tmp_path / "hub") as hub:
        until(lambda: prometheus.targets().get(target) == "up", str(prometheus.targets()))
        until(lambda: prometheus.query("sum(tailrace_worker_shards)") == [4])
        assert "TailraceDeadLetters" not in prometheus.alerts()
        hub.topic("orders", int).push(1, key="c1")
        until(lambda: prometheus.alerts().get("TailraceDeadLetters") == "firing")
        (tmp_path / "mended").touch()
        hub.subscription("mailer").dead_letters.redeliver(key="c1")
        until(lambda: "TailraceDeadLetters" not in prometheus.alerts())
        worker.kill()
        until(lambda: prometheus.alerts().get("TailraceDown") == "firing")
