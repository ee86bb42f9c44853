"""The second act: a subscription posts orders to an HTTP service that fails.

The service answers 503 for some customers for some seconds, and 422 for one customer until it is
fixed. A worker is frozen when the service has received an order and not yet answered; another one
takes over, and then the frozen one wakes. At the end the service is fixed, and the orders that are
dead letters are redelivered.
"""

from __future__ import annotations

import importlib.util
import shlex
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import tailrace
from tailrace.demo.endpoint.audit import LOGS, endpoint_rows, refusals
from tailrace.demo.endpoint.deliverer import SUBSCRIPTION
from tailrace.demo.endpoint.orders import CUSTOMERS, HELD, REFUSED, RETRY, UNAVAILABLE, WebOrders
from tailrace.demo.endpoint.producer import TOPIC, push_round
from tailrace.demo.endpoint.server import UNAVAILABLE_S, EndpointFiles
from tailrace.demo.processes import Processes
from tailrace.demo.report import Row
from tailrace.demo.stage import Display, StageProgress
from tailrace.demo.workload import Order
from tailrace.errors import BackendUnavailable
from tailrace.operations.explanation import Fact, fact_lines
from tailrace.operations.subscription.explain_key import explain_key

WITHOUT: Final = """\
Web orders: an order that was posted again has two effects at an endpoint that does not compare \
ce-sequence, and none is recognised. A sender that retries each order alone, with the same delays, \
lets later orders of its customer pass; one that retries in place holds up its whole partition; \
one that drops what is refused loses the orders pushed before the fix. Without a fence the write \
of a worker that was frozen is stored."""
"""How the last column of this act's rows is calculated."""

SKIPPED: Final = (
    "\nThe endpoint act is skipped: it needs aiohttp, which is not installed; "
    "install it: pip install 'tailrace[http]'"
)
WORKERS: Final = 2
REASON: Final = "the country code is known now"

_PARTITIONS: Final = 4
_PUSH_S: Final = UNAVAILABLE_S + 1.0
"""Seconds over which the first half of the orders is pushed."""
_POLL_S: Final = 0.05
_SECONDS_MAX: Final = 120.0
_REFUSED_S_MAX: Final = 5.0
_IMPATIENT: Final = tailrace.HubSettings(lock_timeout=timedelta(milliseconds=500))


def can_deliver() -> bool:
    """True if the extra for delivery over HTTP is installed."""
    return importlib.util.find_spec("aiohttp") is not None


def play_endpoint(directory: Path, orders: WebOrders, display: Display) -> list[Row]:
    """Play the act in the hub of a directory. Return its rows of the closing table."""
    files = EndpointFiles(directory)
    files.make()
    (directory / LOGS).mkdir()
    display.say(
        f"\n{WORKERS} workers post {orders.orders:,} orders of {len(CUSTOMERS)} customers to an"
        f" HTTP endpoint; it answers 503 for {len(UNAVAILABLE)} of them for"
        f" {UNAVAILABLE_S:.0f} s, and 422 for {REFUSED} until it is fixed"
    )
    endpoint = Processes(
        "endpoint",
        1,
        lambda number: ("tailrace.demo.endpoint.server", str(directory), str(orders.half + 1)),
        logs=directory / LOGS,
    )
    workers = Processes(
        "worker",
        WORKERS,
        lambda number: ("tailrace.demo.endpoint.deliverer", str(directory), str(number)),
        logs=directory / LOGS,
    )
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub, endpoint:
        _create(hub, files, endpoint)
        with workers:
            _EndpointAct(directory, hub, orders, files, workers, display).play()
            workers.stop()
    return endpoint_rows(directory)


def commands(directory: Path) -> list[str]:
    """Return commands that inspect the outcome."""
    return [
        f"tailrace --hub {shlex.quote(str(directory))} subscription show {SUBSCRIPTION}",
        f"tailrace --hub {shlex.quote(str(directory))} audit --target {SUBSCRIPTION}",
    ]


def _create(hub: tailrace.Hub, files: EndpointFiles, endpoint: Processes) -> None:
    """Create the topic, and the subscription once the endpoint serves."""
    hub.create_topic(TOPIC, Order, partitions=_PARTITIONS)
    _until(lambda: endpoint.running() and files.port is not None)
    hub.create_subscription(
        SUBSCRIPTION,
        topic=TOPIC,
        retry=RETRY,
        endpoint=f"http://127.0.0.1:{files.port}/orders",
        allow_private=True,
    )


class _EndpointAct:
    """The act, with its topic, its endpoint and its workers."""

    def __init__(
        self,
        directory: Path,
        hub: tailrace.Hub,
        orders: WebOrders,
        files: EndpointFiles,
        workers: Processes,
        display: Display,
    ) -> None:
        self._directory = directory
        self._hub = hub
        self._orders = orders
        self._files = files
        self._workers = workers
        self._topic = hub.topic(TOPIC, Order)
        self._subscription = hub.subscription(SUBSCRIPTION)
        self._progress = StageProgress(display, "posting", orders.orders, "orders")
        self._command = f"  $ tailrace --hub {shlex.quote(str(directory))}"

    def play(self) -> None:
        """Push and deliver all orders, with every failure."""
        half, rounds = self._orders.half, self._orders.rounds
        accepting = len(CUSTOMERS) - 1
        self._until(self._all_work)
        self._push_slowly(half)
        self._until(lambda: self._accepted() >= half * accepting)
        self._progress.say(
            f"  503:     has ended; the orders of {len(UNAVAILABLE)} customers were posted again"
            " and accepted"
        )
        self._explain()
        for number in range(half + 1, rounds + 1):
            self._push(number)
        self._freeze_one()
        self._until(lambda: self._accepted() >= rounds * accepting)
        self._redeliver()
        self._until(lambda: self._accepted() >= self._orders.orders)
        self._progress.end()

    def _all_work(self) -> bool:
        """True if every worker has shards."""
        workers = self._subscription.describe().workers
        return len(workers) == WORKERS and all(worker.shards for worker in workers)

    def _push_slowly(self, rounds: int) -> None:
        """Push rounds of orders, spread over the time in which the endpoint fails and after it."""
        started = time.monotonic()
        for number in range(1, rounds + 1):
            self._push(number)
            while time.monotonic() < started + _PUSH_S * number / rounds:
                self._accepted()
                time.sleep(_POLL_S)

    def _push(self, number: int) -> None:
        push_round(self._topic, self._orders, number, self._directory)

    def _explain(self) -> None:
        """Show what holds the customer that the endpoint refuses."""
        found = explain_key(self._hub, SUBSCRIPTION, REFUSED)
        self._progress.say(f"{self._command} explain {SUBSCRIPTION} --key {REFUSED}")
        commands = [Fact(each.name, f"{each.command}  {each.outcome}") for each in found.remedies]
        for line in (found.headline, *fact_lines([*found.facts, *commands])):
            self._progress.say(f"    {line.rstrip()}")

    def _freeze_one(self) -> None:
        """Freeze a worker, so that it wakes with answers that it cannot store any more.

        A worker that hears of its loss before it has an answer has no write to be refused. Then the
        next order of the customer is taken.
        """
        for number in range(self._orders.half + 1, self._orders.rounds + 1):
            self._freeze_and_thaw(number)
            if self._is_refused():
                break
        self._files.release_all()

    def _freeze_and_thaw(self, number: int) -> None:
        """Freeze a worker that waits for the answer to an order, and continue it after another one
        has taken over."""
        self._until(lambda: self._files.holds(number) and self._owner() is not None)
        worker = self._owner()
        assert worker is not None, f"the shard of {HELD} changed its owner just now"
        self._workers.freeze(worker, self._is_writable)
        self._files.release(number)
        self._progress.say(f"  SIGSTOP: worker {worker}, before it has the answer to an order")
        frozen = time.monotonic()
        self._until(lambda: self._received(number) > 1 and self._owner() not in (None, worker))
        took_s = time.monotonic() - frozen
        self._progress.say(
            f"  again:   another worker has posted the same order {took_s:.1f} s later; the"
            " endpoint recognised it by its ce-sequence"
        )
        self._workers.thaw(worker)

    def _is_refused(self) -> bool:
        """Wait until the worker that was continued logs that a write of it is refused. False if it
        does not."""
        deadline = time.monotonic() + _REFUSED_S_MAX
        while not (found := refusals(self._directory)):
            if time.monotonic() > deadline:
                self._progress.say("  SIGCONT: it heard of its loss before it could write anything")
                return False
            time.sleep(_POLL_S)
        self._progress.say(f"  SIGCONT: {found[0]}")
        return True

    def _owner(self) -> int | None:
        """Return the number of the worker that owns the order which the endpoint holds."""
        owner = self._subscription.explain(HELD).owner
        return None if owner is None else self._workers.number_of(int(owner.process.split()[1]))

    def _redeliver(self) -> None:
        """Fix the endpoint and redeliver the dead letters of the customer that it refused."""
        self._files.fix()
        letters = self._subscription.dead_letters
        self._progress.say(
            f"{self._command} dlq {SUBSCRIPTION} redeliver --key {REFUSED}"
            f" --reason {shlex.quote(REASON)}"
        )
        made = letters.redeliver(key=REFUSED, reason=REASON)
        self._until(lambda: not letters.is_pending(made))
        self._progress.say(f"  fixed:   {made.letters} dead letters were redelivered")

    def _is_writable(self) -> bool:
        """True if no frozen process is within a commit: that would hold up the commits of all."""
        try:
            tailrace.open(self._directory, settings=_IMPATIENT).close()
        except BackendUnavailable:
            return False
        return True

    def _accepted(self) -> int:
        accepted = self._files.accepted()
        self._progress.show(accepted)
        return accepted

    def _received(self, number: int) -> int:
        """Return how often the endpoint has answered the `number`-th order of the customer."""
        order = HELD, number
        return sum((each.customer, each.number) == order for each in self._files.requests())

    def _until(self, happened: Callable[[], bool]) -> None:
        _until(lambda: self._workers.running() and happened())


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError("the endpoint act takes too long; see the logs in its directory")
        time.sleep(_POLL_S)
