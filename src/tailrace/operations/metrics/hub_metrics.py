"""The metrics and the health of this process, for one hub."""

from __future__ import annotations

from typing import Final

from tailrace.clock import Clock
from tailrace.errors import Error
from tailrace.hub.hub import Hub
from tailrace.operations.metrics.hub_readings import HubReadings
from tailrace.operations.metrics.server import MetricsServer
from tailrace.reporting.address import parse_address
from tailrace.reporting.metric import Metric
from tailrace.reporting.reporters import reporters_of
from tailrace.reporting.sample import Sample, summed
from tailrace.topic.composite import TOPICS

PORT: Final = 9464
"""The port of metrics that OpenTelemetry proposes for exporters for Prometheus."""


class HubMetrics:
    """What everything in this process that uses a hub reports, and what is read of the hub for it.

    With `awaited`, the process does not work before this metric is reported. Any thread may use it.
    """

    def __init__(
        self, hub: Hub, clock: Clock | None = None, *, awaited: Metric | None = None
    ) -> None:
        self._hub = hub
        self._awaited = awaited
        self._reporters = reporters_of(hub.backend)
        self._readings = HubReadings(hub, clock)

    def samples(self) -> list[Sample]:
        """Return the samples of now."""
        own = self.own_samples()
        return summed([*own, *self._readings.samples(own)])

    def own_samples(self) -> list[Sample]:
        """Return the samples of now, without those that are read of the hub."""
        return self._reporters.samples()

    def unready(self) -> str | None:
        """Return why the process does not work: the hub does not answer, a worker has not joined
        its group, or a pipeline has not started. None if everything works."""
        try:
            self._hub.backend.store.get(TOPICS)
        except Error as error:
            return f"hub: {type(error).__name__}"
        if not self._reports_awaited():
            return "starting"
        return self._reporters.unready()

    def _reports_awaited(self) -> bool:
        awaited = self._awaited
        return awaited is None or any(each.metric is awaited for each in self.own_samples())


def serve_metrics(hub: Hub, listen: str | int = PORT) -> MetricsServer:
    """Serve the metrics and the health of everything in this process that uses a hub: workers,
    consumers, producers, pipelines and sources.

    `listen` is a port of this machine alone, or ``"HOST:PORT"``; port 0 is any free one. See
    `MetricsServer.url`. `ConfigError` if the port is in use.
    """
    server = MetricsServer(parse_address(listen, "listen"))
    server.show(HubMetrics(hub))
    return server
