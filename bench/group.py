"""Consumer groups: the delivery loop, latency, the planner, rebalances, and idle consumers."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import tailrace
from bench import payloads, rebalance
from bench.consumer_processes import (
    DEADLINE_S,
    TOPIC,
    Consumer,
    PipeReceiver,
    Process,
    idle,
    stamped,
)
from bench.measure import OURS, Scale, Timed, Timer, Turn, say, take_turns
from bench.report import Goal, Row, Sense, against, figures_of
from tailrace.group.protocol.leader.planner import plan

BATCH = 8_000
GAP_S = 0.02
WARM = 50
VALUE_BYTES = 100
STRUCT_LOOP = "struct loop"
DECODED = "tailrace, .value taken"
COUNTED = "tailrace, deliveries only counted"
COLUMNS = "tailrace, batches()"
PIPE = "a pipe"

UNITS, BORROWERS = 1_000, 100
PARTITIONS, GROUPS, CONSUMERS, PROCESSES = 12, 100, 10, 4
IDLE_S = 20

LOOP_REASON = (
    "each delivery is an object that reads its fields from columns when they are asked for, checks"
    " the lease and is acknowledged; a tuple is made by one call"
)
BUSY = "a process that waits for a core on a busy machine; see the pipe beside it"


def rows(scale: Scale) -> list[Row]:
    """Measure groups."""
    return [_loop(scale), _latency(scale), _planner(scale), *rebalance.rows(scale), _idle()]


def _loop(scale: Scale) -> Row:
    work = "for delivery in topic.tail(group=...), 100 B, the bytes of key and value taken"
    batches = scale.count(64)
    contenders = {
        OURS: _tailing(batches, take_bytes),
        DECODED: _tailing(batches, _take_value),
        COUNTED: _tailing(batches, lambda consumer: deque(consumer, maxlen=0)),
        COLUMNS: _tailing(batches, lambda consumer: deque(consumer.batches(), maxlen=0)),
        STRUCT_LOOP: _struct_loop(batches),
    }
    rates = take_turns(work, contenders, scale.rounds, Timed.CPU)
    goal = against(rates, STRUCT_LOOP, 0.5, reason=LOOP_REASON)
    return Row(work, figures_of(rates, "messages"), (goal,))


def take_bytes(deliveries: Iterable[tailrace.Delivery[bytes]]) -> None:
    """Read the bytes of key and value of each delivery."""
    for delivery in deliveries:
        _key = delivery.key_bytes
        _value = delivery.data


def _take_value(deliveries: Iterable[tailrace.Delivery[bytes]]) -> None:
    for delivery in deliveries:
        _value = delivery.value


def _tailing(batches: int, use: Callable[[tailrace.Consumer[bytes]], object]) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with (
            tailed(directory, batches) as topic,
            timer.running(),
            topic.tail(group="bench", until="end") as consumer,
        ):
            use(consumer)
        return batches * BATCH

    return turn


@contextmanager
def tailed(directory: Path, batches: int) -> Iterator[tailrace.Topic[bytes]]:
    """Push a number of batches, and check at the end that the group "bench" has consumed them."""
    settings = tailrace.HubSettings()
    with tailrace.open(directory / "hub", sync="none", settings=settings) as hub:
        topic = hub.create_topic("log", bytes, partitions=1)
        for _ in range(batches):
            topic.append(payloads.columns(BATCH, VALUE_BYTES))
        yield topic
        assert not hub.group("bench").lag()[0].lag


def _struct_loop(batches: int) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        path = directory / "plain.log"
        path.write_bytes(payloads.log_bytes(BATCH, VALUE_BYTES) * batches)
        with timer.running():
            deque(payloads.struct_tuples(path.read_bytes()), maxlen=0)
        return batches * BATCH

    return turn


def _latency(scale: Scale) -> Row:
    """Measure single pushes to a sleeping consumer, and a line through a pipe with each of them.

    The pipe shows the time that the machine needs to wake any process.
    """
    work = "push to a handler in another process, idle, no sync"
    count = scale.count(500)
    say(f"{work}: {count} pushes")
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-bench-group-") as directory,
        tailrace.open(Path(directory) / "hub", sync="none") as hub,
    ):
        topic = hub.create_topic(TOPIC, bytes, partitions=4)
        receivers = Consumer(Path(directory), 0), PipeReceiver(Path(directory), 1)
        try:
            for number in range(WARM + count):
                topic.push(stamped(), key=f"k{number}")
                time.sleep(GAP_S)
                receivers[1].send(stamped())
                time.sleep(GAP_S)
            ours, pipe = (_cuts_ms(receiver, WARM + count) for receiver in receivers)
        finally:
            for receiver in receivers:
                receiver.end()
    figures = tuple(
        f"{name} p50 {cuts[49]:.2f} ms, p90 {cuts[89]:.2f} ms, p99 {cuts[98]:.2f} ms"
        for name, cuts in ((OURS, ours), (PIPE, pipe))
    )
    goals = (
        Goal("p50", ours[49], 5, Sense.AT_MOST, " ms", BUSY),
        Goal("p99", ours[98], 25, Sense.AT_MOST, " ms", BUSY),
    )
    return Row(work, figures, goals)


def _cuts_ms(receiver: Consumer | PipeReceiver, count: int) -> list[float]:
    """Return percentiles of all messages but the first, which arrived during the join."""
    deadline = time.monotonic() + DEADLINE_S
    while len(found := sorted(receiver.received())) < count:
        assert time.monotonic() < deadline, "messages do not come"
        time.sleep(0.1)
    return quantiles([each.latency_s * 1000 for each in found[WARM:]], n=100)


def _planner(scale: Scale) -> Row:
    work = f"plan {UNITS} units over {BORROWERS} borrowers"
    loads = {f"orders/0.{number}": number % 17 for number in range(UNITS)}
    borrowers = [f"borrower-{number}" for number in range(BORROWERS)]
    owners = dict(plan(loads, borrowers, {}).granted)
    first = _plan_s(scale, lambda: plan(loads, borrowers, {}))
    one_less = _plan_s(scale, lambda: plan(loads, borrowers[1:], owners))
    figures = (
        f"all from nothing {first * 1000:.2f} ms",
        f"one borrower gone {one_less * 1000:.2f} ms",
    )
    goal = Goal("CPU time", max(first, one_less), 0.05, Sense.AT_MOST, " s")
    return Row(work, figures, (goal,))


def _plan_s(scale: Scale, work: Callable[[], object]) -> float:
    taken = []
    for _ in range(scale.count(20)):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return median(taken)


def _idle() -> Row:
    """Measure the CPU time of processes with idle consumers."""
    work = f"{GROUPS} idle groups of {CONSUMERS} consumers each, in {PROCESSES} processes"
    groups = [f"group-{number % GROUPS}" for number in range(GROUPS * CONSUMERS)]
    processes: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-group-") as directory:
        hub_path = Path(directory) / "hub"
        with tailrace.open(hub_path, sync="none") as hub:
            hub.create_topic(TOPIC, bytes, partitions=PARTITIONS)
            try:
                for number in range(PROCESSES):
                    say(f"{work}: process {number + 1}")
                    mine = [groups[n] for n in range(len(groups)) if _home(n) == number]
                    processes.append(Process(idle, hub_path, mine))
                _await_granted(hub)
                before = sum(process.cpu_s for process in processes)
                time.sleep(IDLE_S)
                used = sum(process.cpu_s for process in processes) - before
            finally:
                for process in processes:
                    process.end()
    goal = Goal("of one core", 100 * used / IDLE_S, 5, Sense.AT_MOST, " %")
    return Row(work, (f"{used:.2f} CPU s in {IDLE_S} s",), (goal,))


def _home(number: int) -> int:
    """Return the process of a consumer. Each group has consumers in all processes."""
    return (number // GROUPS) % PROCESSES


def _await_granted(hub: tailrace.Hub) -> None:
    """Wait until every partition of every group has an owner."""
    deadline = time.monotonic() + DEADLINE_S
    for group in hub.groups():
        while any(partition.owner is None for partition in hub.group(group).describe().partitions):
            assert time.monotonic() < deadline, f"{group} has partitions without an owner"
            time.sleep(0.2)
    time.sleep(3.0)
