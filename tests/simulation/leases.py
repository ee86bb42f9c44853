"""A small protocol to test the simulator: a keeper lends one key to many askers.

The keeper lends for `LEASE_S` from when it got the request; an asker goes by it for `LEASE_S` less
a margin from when it sent the request. So never two have the key, however slow the network is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tailrace.testing.faults import FaultInjector, Faults
from tailrace.testing.memory import MemoryBackend
from tailrace.testing.network import Network
from tailrace.testing.process import Process
from tailrace.testing.simulation import Simulation
from tailrace.testing.unreliable import UnreliableBackend

LEASE_S = 2.0
MARGIN_S = 0.2
ASK_S = 0.5


class Tick(NamedTuple):
    """Time has passed."""


class Came(NamedTuple):
    sender: str
    message: Any


class Wanted(NamedTuple):
    sent_at: float


class Lent(NamedTuple):
    sent_at: float


class Send(NamedTuple):
    receiver: str
    message: Any


class Keeper:
    """Lends the key to one at a time."""

    def __init__(self) -> None:
        self.borrower: str | None = None
        self.until = 0.0

    def handle(self, event: Any, now: float) -> list[Send]:
        if isinstance(event, Tick) and self.borrower is not None and now >= self.until:
            self.borrower = None
        if not isinstance(event, Came) or not isinstance(event.message, Wanted):
            return []
        if self.borrower not in (None, event.sender):
            return []
        self.borrower = event.sender
        self.until = now + LEASE_S
        return [Send(event.sender, Lent(event.message.sent_at))]

    def deadline(self) -> float | None:
        return None if self.borrower is None else self.until

    def validate(self) -> None:
        assert self.borrower is None or self.until > 0


class Asker:
    """Asks for the key again and again."""

    def __init__(self, keeper: str) -> None:
        self.keeper = keeper
        self.until = float("-inf")
        self.ask_at = 0.0

    def handle(self, event: Any, now: float) -> list[Send]:
        if isinstance(event, Came) and isinstance(event.message, Lent):
            self.until = max(self.until, self.lent_until(event.message, now))
        if now < self.ask_at:
            return []
        self.ask_at = now + ASK_S
        return [Send(self.keeper, Wanted(now))]

    def lent_until(self, lent: Lent, now: float) -> float:
        return lent.sent_at + LEASE_S - MARGIN_S

    def deadline(self) -> float | None:
        return self.ask_at

    def validate(self) -> None:
        assert self.keeper


class HastyAsker(Asker):
    """Goes by the lease from when it hears of it: wrong."""

    def lent_until(self, lent: Lent, now: float) -> float:
        return now + LEASE_S - MARGIN_S


class Running:
    """A machine of this protocol in a process."""

    tick = Tick()

    def __init__(self, process: Process, network: Network, machine: Keeper | Asker) -> None:
        self.machine = machine
        self._process = process
        self._network = network

    def perform(self, action: Send) -> None:
        self._network.send(self._process, action.receiver, action.message)

    def receive(self, sender: str, message: Any) -> Came:
        return Came(sender, message)

    def end(self) -> None:
        """There is nothing to clear away."""


class LeaseWorld:
    """A keeper that does not fail, and three askers that do."""

    def __init__(self, seed: int, faults: Faults, asker: type[Asker] = Asker) -> None:
        self.simulation = Simulation(seed)
        self.network = Network(self.simulation)
        self.askers: dict[str, Process] = {}
        self.lent = 0
        backend = MemoryBackend()
        store = UnreliableBackend(backend, self.simulation.random("store"))
        keeper = self._process("keeper", Keeper())
        keeper.start()
        for name in "abc":
            self.askers[name] = self._process(name, asker, keeper.token)
            self.askers[name].clock_drift = faults.drift
            self.askers[name].start()
        self.injector = FaultInjector(
            self.simulation, faults, self.network, self.askers, lambda name: store
        )
        self.simulation.always(self.at_most_one_has_the_key)
        self.injector.begin()

    def _process(self, name: str, machine: Any, *arguments: Any) -> Process:
        def boot(process: Process) -> Running:
            made = machine(*arguments) if isinstance(machine, type) else machine
            return Running(process, self.network, made)

        process = Process(self.simulation, name, boot)
        self.network.join(process)
        return process

    def having_the_key(self) -> list[str]:
        having = []
        for name, process in self.askers.items():
            asker = process.program.machine
            assert isinstance(asker, Asker)
            if process.alive and process.clock.monotonic() < asker.until:
                having.append(name)
        return having

    def at_most_one_has_the_key(self) -> None:
        having = self.having_the_key()
        self.lent += bool(having)
        assert len(having) <= 1, f"{having} all have the key"
