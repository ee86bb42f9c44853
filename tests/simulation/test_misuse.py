"""What a test gets wrong in its use of the simulator is named at once, and so is what its handler
gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.delivery.delivery import Delivery
from tailrace.errors import Error, GroupExists, InvalidName, InvalidValue, OutOfRange, UnknownTopic
from tailrace.testing import (
    Faults,
    GroupWorld,
    Quality,
    SimulatedProcess,
    StoreQuality,
    Violation,
)

Use = Callable[[GroupWorld], object]


def world() -> GroupWorld:
    """Return a world that has run for a while: a topic, two processes, a consumer."""
    made = GroupWorld(seed=1)
    made.topic("orders", partitions=2)
    made.process("a").consumer("billing", "orders")
    made.process("b")
    made.run(2)
    return made


def process(made: GroupWorld) -> SimulatedProcess:
    return made.process("a")


NAMES: dict[str, Use] = {
    "push": lambda w: w.push("oder", 1),
    "produce": lambda w: w.produce("oder", [("k", 1)], every_s=1),
    "scale": lambda w: w.scale("oder", 4),
    "seek": lambda w: w.seek("oder", "earliest"),
    "skip": lambda w: w.skip("oder", "orders/0.0@0"),
    "leader": lambda w: w.leader("oder"),
    "audit": lambda w: w.audit("oder"),
    "consumed": lambda w: w.consumed("oder"),
    "owners": lambda w: w.owners("oder"),
    "store_of": lambda w: w.store_of("oder"),
    "cut": lambda w: w.network.cut("a", "oder"),
    "mend": lambda w: w.network.mend("oder", "a"),
    "isolate": lambda w: w.network.isolate("oder"),
}


@pytest.mark.parametrize("use", NAMES)
def test_an_unknown_name_is_answered_with_the_known_names(use: str) -> None:
    with pytest.raises(InvalidValue, match="'oder'") as found:
        NAMES[use](world())
    assert found.value.valid in ("orders", "billing", "a, b")


def _wrong(value: object) -> Any:
    """Arguments that a type checker refuses."""
    return value


async def refuse_to_run(order: Delivery[int]) -> None:
    raise AssertionError(order)


VALUES: dict[str, Use] = {
    "every_s": lambda w: w.produce("orders", [("k", 1)], every_s=-1),
    "messages": lambda w: w.produce("orders", [_wrong(1)], every_s=1),
    "position": lambda w: w.skip("billing", "orders/0.0"),
    "handler": lambda w: process(w).consumer("billing", "orders", handler=_wrong(1)),
    "handler is <function refuse_to_run": lambda w: process(w).consumer(
        "billing", "orders", handler=refuse_to_run
    ),
    "takes_s": lambda w: process(w).consumer("billing", "orders", takes_s=(2, 1)),
    "concurrency": lambda w: process(w).consumer("billing", "orders", concurrency=0),
    "attempts": lambda w: process(w).consumer("billing", "orders", attempts=0),
    "retry_s": lambda w: process(w).consumer("billing", "orders", retry_s=_wrong(1)),
    "pause": lambda w: process(w).pause(-1),
    "time": lambda w: w.run(-1),
    "within_s": lambda w: w.run_until(lambda: True, within_s=-1),
    "what": lambda w: w.at(5, _wrong(None)),
    "crash_every_s": lambda w: Faults(crash_every_s=-1),
    "drift": lambda w: Faults(drift=2),
    "loss": lambda w: Quality(loss=2),
    "delay_s": lambda w: Quality(delay_s=(2, 1)),
    "failure": lambda w: StoreQuality(failure=-1),
    "first": lambda w: w.network.drop(int, first=0),
    "times": lambda w: w.network.repeat(int, times=0, every_s=1),
    "which messages": lambda w: w.network.hold(_wrong("Grant")),
}


@pytest.mark.parametrize("what", VALUES)
def test_an_invalid_value_is_refused_where_it_is_given(what: str) -> None:
    with pytest.raises(InvalidValue, match=f"{what}.* · valid: "):
        VALUES[what](world())


def test_a_simulated_hub_refuses_what_a_hub_refuses() -> None:
    made = world()
    made.topic("other")
    with pytest.raises(GroupExists):
        made.process("a").consumer("billing", "other")
    with pytest.raises(UnknownTopic):
        made.process("a").consumer("printing", "nothing")
    with pytest.raises(InvalidName):
        made.process("a/b")
    with pytest.raises(Error, match=r"process a is running · crash\(\) it"):
        made.process("a").start()
    made.run(5)
    assert [consumer.name for consumer in made.process("a").consumers_of("billing")] == [
        "billing-1"
    ]


@pytest.mark.parametrize(("topic", "partitions"), [("orders", 5), ("orders", 0), ("oder", 4)])
def test_a_scaling_that_is_refused_leaves_no_line_in_the_trace(topic: str, partitions: int) -> None:
    made = world()
    before = made.simulation.trace.text()
    with pytest.raises(InvalidValue):
        made.scale(topic, partitions)
    assert made.simulation.trace.text() == before


def test_a_skip_of_a_message_that_does_not_exist_is_refused() -> None:
    with pytest.raises(OutOfRange):
        world().skip("billing", "orders/0.0@7")


def test_a_consumer_that_has_left_can_be_ended() -> None:
    made = world()
    (consumer,) = made.process("a").consumers_of("billing")
    consumer.leave()
    made.run(5)
    consumer.die()
    assert consumer.session is None


def test_faults_in_a_world_without_processes_do_nothing() -> None:
    made = GroupWorld(1, Faults(crash_every_s=1, pause_every_s=1, outage_every_s=1, step_every_s=1))
    made.run(20)
    assert made.run_until_consumed() == 0


def test_a_consumer_that_has_joined_does_not_join_twice() -> None:
    made = world()
    (consumer,) = made.process("a").consumers_of("billing")
    session = consumer.session
    consumer.join()
    assert consumer.session is session
    consumer.leave()
    consumer.join()
    assert consumer.session is not session


def refuse_seven(order: Delivery[int]) -> None:
    if order.value == 7:
        raise ZeroDivisionError("seven")


def test_a_violation_names_the_exception_of_the_handler() -> None:
    made = GroupWorld(seed=1)
    made.topic("orders", int, partitions=1)
    made.process("a").consumer("billing", "orders", handler=refuse_seven, attempts=3)
    receipts = [made.push("orders", number, key="k") for number in (6, 7)]
    with pytest.raises(Violation) as found:
        made.run_until_consumed()
    failed = f"the handler of a.1/billing-1.1 failed on {receipts[1].id} 3 times"
    assert f"{failed}, last: ZeroDivisionError('seven')" in found.value.what
    assert isinstance(found.value.__cause__, ZeroDivisionError)
    with pytest.raises(Violation, match="was not reached within 1 s; the handler of"):
        made.run_until(lambda: made.consumed("billing"), within_s=1)


def test_a_violation_does_not_name_a_handler_that_recovered() -> None:
    def stumble(order: Delivery[int]) -> None:
        if order.attempt == 1:
            raise ZeroDivisionError

    made = GroupWorld(seed=1)
    made.topic("orders", int, partitions=1)
    made.process("a").consumer("billing", "orders", handler=stumble)
    made.push("orders", 1)
    made.run_until_consumed()
    with pytest.raises(Violation) as found:
        made.run_until(lambda: False, within_s=1)
    assert found.value.what == "the condition was not reached within 1 s"
