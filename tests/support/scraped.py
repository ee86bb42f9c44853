"""Metrics as they are scraped over HTTP, read by the parser of Prometheus' Python client."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Answer(NamedTuple):
    """The status and the text of an answer."""

    status: int
    text: str


def get(url: str, path: str = "/metrics") -> Answer:
    """Return the answer of a server of metrics, whose URL ends in ``/metrics``."""
    try:
        with urllib.request.urlopen(url.removesuffix("/metrics") + path, timeout=60) as answer:
            return Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode())


class Scraped:
    """The metrics of one answer."""

    def __init__(self, url: str) -> None:
        answer = get(url)
        assert answer.status == 200, answer
        families = list(text_string_to_metric_families(answer.text))
        self.names = {each.name + ("_total" if each.type == "counter" else "") for each in families}
        """The names of the metrics that have a value."""
        self._samples = [sample for family in families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sum of the series with these labels; None without one.

        The name is that after ``tailrace_``.
        """
        found = [
            sample.value
            for sample in self._samples
            if sample.name == f"tailrace_{name}" and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def labels(self, name: str) -> list[dict[str, str]]:
        """Return the labels of each series of a metric."""
        return [each.labels for each in self._samples if each.name == f"tailrace_{name}"]
