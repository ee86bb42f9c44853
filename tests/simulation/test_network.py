"""The network of a simulation does to messages what a test requests, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.testing.network import Network, Quality
from tailrace.testing.process import Process
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark
from tests.simulation.test_kernel import Recorder


class Pair:
    """Two processes, `a` and `b`, that send numbers and record received ones."""

    def __init__(self, quality: Quality | None = None) -> None:
        self.simulation = Simulation(5)
        self.network = Network(self.simulation, quality)
        self.a, self.b = self._process("a"), self._process("b")

    def _process(self, name: str) -> Process:
        process = Process(self.simulation, name, lambda _: Recorder())
        self.network.join(process)
        process.start()
        return process

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.network.send(self.a, self.b.token, message)

    def got(self, process: Process | None = None) -> list[Any]:
        self.simulation.run(10)
        recorder = (process or self.b).program
        assert isinstance(recorder, Recorder)
        return recorder.events


def test_each_message_arrives_once_without_faults() -> None:
    pair = Pair()
    pair.send(*range(50))
    assert sorted(pair.got()) == list(range(50))


def test_later_messages_overtake_earlier_ones() -> None:
    pair = Pair()
    pair.send(*range(50))
    assert pair.got() != list(range(50))


def test_a_share_of_the_messages_is_lost_or_duplicated() -> None:
    pair = Pair(Quality(loss=0.3, doubling=0.3))
    pair.send(*range(1000))
    got = pair.got()
    assert 600 < len(set(got)) < 800
    assert len(got) > len(set(got)) + 100
    lost = sum(line.mark is Mark.LOST for line in pair.simulation.trace)
    assert lost == 1000 - len(set(got))


def test_a_cut_is_one_way_until_it_is_mended() -> None:
    pair = Pair()
    pair.network.cut("a", "b")
    pair.send(1)
    pair.network.send(pair.b, pair.a.token, 2)
    assert pair.got() == []
    assert pair.got(pair.a) == [2]
    pair.network.mend("a", "b")
    pair.send(3)
    assert pair.got() == [3]


def test_an_isolated_process_reaches_only_itself_until_all_is_healed() -> None:
    pair = Pair()
    pair.network.isolate("a")
    pair.send(1)
    pair.network.send(pair.b, pair.a.token, 2)
    pair.network.send(pair.a, pair.a.token, 3)
    assert (pair.got(), pair.got(pair.a)) == ([], [3])
    pair.network.heal()
    pair.send(4)
    assert pair.got() == [4]


def test_the_first_messages_about_each_thing_are_dropped() -> None:
    pair = Pair()
    pair.network.drop(int, first=2, per=lambda envelope: envelope.message % 10)
    pair.send(1, 11, 2, 21, 12, 31, 22, "word")
    assert sorted(pair.got(), key=str) == [21, 22, 31, "word"]


def test_a_rule_ends() -> None:
    pair = Pair()
    rule = pair.network.drop(lambda envelope: envelope.sender == "a")
    pair.send(1)
    rule.end()
    pair.send(2)
    assert pair.got() == [2]


def test_a_message_is_repeated_a_while_apart() -> None:
    pair = Pair()
    pair.network.repeat(int, times=3, every_s=1.0)
    pair.send(1)
    assert pair.got() == [1, 1, 1]
    assert isinstance(pair.b.program, Recorder)
    times = [now for _, now in pair.b.program.handled]
    assert times[2] - times[0] == pytest.approx(2.0, abs=0.01)


def test_held_messages_arrive_when_they_are_released() -> None:
    pair = Pair()
    held = pair.network.hold(int)
    pair.send(1, "word", 2)
    assert pair.got() == ["word"]
    assert [envelope.message for envelope in held.messages] == [1, 2]
    held.release()
    pair.send(3)
    assert pair.got() == ["word", 1, 2, 3]


def test_a_message_to_the_own_process_is_lost_only_by_a_rule() -> None:
    pair = Pair(Quality(loss=1.0))
    pair.network.send(pair.a, pair.a.token, 1)
    assert pair.got(pair.a) == [1]
    pair.network.drop(int)
    pair.network.send(pair.a, pair.a.token, 2)
    assert pair.got(pair.a) == [1]


def test_a_message_to_a_former_incarnation_does_not_reach_the_next() -> None:
    pair = Pair()
    pair.send(1)
    pair.b.crash()
    pair.b.start()
    assert pair.got() == []
