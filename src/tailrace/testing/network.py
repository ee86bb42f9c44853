"""The network of a simulation: it loses, doubles, delays, reorders and cuts off messages.

Between two processes each message takes a random time, so a later one may overtake it. A test
treats chosen messages by rules: `drop`, `repeat`, `hold`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tailrace.testing.arguments import (
    check_callable,
    check_count,
    check_known,
    check_part,
    check_seconds,
    check_span,
)
from tailrace.testing.process import Process
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark


class Packet(NamedTuple):
    """A message in transit. Sender and receiver are names of processes, not of their lives."""

    sender: str
    receiver: str
    message: Any


Matching: TypeAlias = type | tuple[type, ...] | Callable[[Packet], bool]
"""Selects messages: a type, a tuple of types, or a function that returns True for them."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How a network treats messages between two processes.

    The part `loss` of all messages is lost, and the part `doubling` arrives twice. Each takes from
    `delay_s[0]` to `delay_s[1]`; the part `straggling` takes up to `straggling_s`.
    """

    loss: float = 0.0
    doubling: float = 0.0
    delay_s: tuple[float, float] = (0.000_2, 0.002)
    straggling: float = 0.0
    straggling_s: float = 1.0

    def __post_init__(self) -> None:
        for what in ("loss", "doubling", "straggling"):
            check_part(what, getattr(self, what))
        check_span("delay_s", self.delay_s)
        check_seconds("straggling_s", self.straggling_s)


class Rule:
    """A rule for chosen messages, in force until `end`."""

    def __init__(self, matching: Matching) -> None:
        if not isinstance(matching, tuple):
            valid = "a type of messages, a tuple of types, or a function of an Packet"
            check_callable("which messages", matching, valid)
        self.ended = False
        self._matching = matching

    def matches(self, envelope: Packet) -> bool:
        """True if the rule applies to this message."""
        if isinstance(self._matching, type | tuple):
            return isinstance(envelope.message, self._matching)
        return self._matching(envelope)

    def end(self) -> None:
        """Lift the rule."""
        self.ended = True


@dataclass(slots=True)
class _Dropping:
    """Counts the dropped messages, for each value of `per`."""

    first: int | None
    per: Callable[[Packet], Hashable]
    dropped: dict[Hashable, int] = field(default_factory=dict)

    def drops(self, envelope: Packet) -> bool:
        if self.first is None:
            return True
        what = self.per(envelope)
        self.dropped[what] = self.dropped.get(what, 0) + 1
        return self.dropped[what] <= self.first


class HeldMessages(Rule):
    """A rule that holds messages back until `release`, which lifts it."""

    def __init__(self, matching: Matching, network: Network) -> None:
        super().__init__(matching)
        self.messages: list[Packet] = []
        self._network = network
        self._deliveries: list[Callable[[], None]] = []

    def add(self, envelope: Packet, deliver: Callable[[], None]) -> None:
        """Hold a message back."""
        self.messages.append(envelope)
        self._deliveries.append(deliver)

    def release(self) -> None:
        """Deliver all messages now, in order, and lift the rule."""
        self.end()
        for deliver in self._deliveries:
            deliver()
        self._deliveries.clear()


class Network:
    """Carries messages between the processes of a simulation.

    A message of a process to itself arrives at once, unless a rule applies to it.
    """

    def __init__(self, simulation: Simulation, quality: Quality | None = None) -> None:
        self.quality = quality or Quality()
        self._simulation = simulation
        self._random = simulation.random("network")
        self._processes: dict[str, Process] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._drops: list[tuple[Rule, _Dropping]] = []
        self._repeats: list[tuple[Rule, int, float]] = []
        self._holds: list[HeldMessages] = []

    def join(self, process: Process) -> None:
        """Connect a process, with all of its lives."""
        self._processes[process.name] = process

    def cut(self, sender: str, receiver: str) -> None:
        """Lose every message from one process to another. The other direction is another cut."""
        self._check(sender, receiver)
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            self._simulation.record(Mark.FAULT, sender, f"cannot reach {receiver}")

    def isolate(self, name: str) -> None:
        """Cut a process off from all others, both ways."""
        self._check(name)
        for other in self._processes:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def mend(self, sender: str, receiver: str) -> None:
        """End a cut."""
        self._check(sender, receiver)
        if (sender, receiver) in self._cuts:
            self._cuts.discard((sender, receiver))
            self._simulation.record(Mark.FAULT, sender, f"reaches {receiver} again")

    def heal(self) -> None:
        """End all cuts and all loss. Rules stay."""
        self.quality = Quality()
        for sender, receiver in sorted(self._cuts):
            self.mend(sender, receiver)

    def drop(
        self,
        matching: Matching,
        *,
        first: int | None = None,
        per: Callable[[Packet], Hashable] = lambda _: None,
    ) -> Rule:
        """Lose these messages: all, or the `first` ones for each value of `per`."""
        if first is not None:
            check_count("first", first)
        rule = Rule(matching)
        self._drops.append((rule, _Dropping(first, per)))
        return rule

    def repeat(self, matching: Matching, *, times: int, every_s: float) -> Rule:
        """Deliver each of these messages a number of times, at intervals."""
        check_count("times", times)
        check_seconds("every_s", every_s)
        rule = Rule(matching)
        self._repeats.append((rule, times, every_s))
        return rule

    def hold(self, matching: Matching) -> HeldMessages:
        """Hold these messages back until they are released."""
        held = HeldMessages(matching, self)
        self._holds.append(held)
        return held

    def send(self, sender: Process, receiver: str, message: Any) -> None:
        """Send a message to a life of a process."""
        name = receiver.rpartition(".")[0]
        envelope = Packet(sender.name, name, message)
        process = self._processes.get(name)
        if process is None or self._dropped(envelope):
            self._simulation.record(Mark.LOST, sender.name, envelope)
            return
        token = sender.token

        def deliver() -> None:
            if process.token == receiver:
                process.receive(token, message)

        for held in self._holds:
            if not held.ended and held.matches(envelope):
                held.add(envelope, deliver)
                self._simulation.record(Mark.HELD, sender.name, envelope)
                return
        self._deliver(envelope, deliver)

    def _check(self, *names: str) -> None:
        for name in names:
            check_known("process", name, self._processes, "start it first")

    def _deliver(self, envelope: Packet, deliver: Callable[[], None]) -> None:
        for rule, times, every_s in self._repeats:
            if not rule.ended and rule.matches(envelope):
                for number in range(1, times):
                    self._simulation.after(number * every_s, deliver)
        if envelope.sender == envelope.receiver:
            deliver()
            return
        self._simulation.after(self._delay_s(), deliver)
        if self.quality.doubling and self._random.random() < self.quality.doubling:
            self._simulation.after(self._delay_s(), deliver)

    def _dropped(self, envelope: Packet) -> bool:
        for rule, dropping in self._drops:
            if not rule.ended and rule.matches(envelope) and dropping.drops(envelope):
                return True
        sender, receiver, _ = envelope
        if sender == receiver:
            return False
        if (sender, receiver) in self._cuts:
            return True
        return self.quality.loss > 0 and self._random.random() < self.quality.loss

    def _delay_s(self) -> float:
        quality = self.quality
        least, most = quality.delay_s
        if quality.straggling and self._random.random() < quality.straggling:
            most = quality.straggling_s
        return self._random.uniform(least, most)
