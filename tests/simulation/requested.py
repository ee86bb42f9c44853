"""Subscriptions in a simulation whose dead letters operators redeliver and discard meanwhile."""

from __future__ import annotations

from random import Random

from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.requests.selection import LetterSelection
from tests.simulation import subscribed
from tests.simulation.subscribed import FAULTY_S, NAME, Fate, Trial

_KEYS = "abcdefg"
_LATE_ORDERS = 60


class RequestedTrial(Trial):
    """A trial after which the handler is mended, and every dead letter is redelivered."""

    def run(self) -> None:
        """Run the trial. Then no dead letter may be left, while messages keep coming."""
        super().run()
        world = self.world
        self.service.fates.clear()
        late = [(_KEYS[number % len(_KEYS)], 10_000 + number) for number in range(_LATE_ORDERS)]
        world.produce("orders", late, every_s=0.05)
        world.ask(NAME, RequestAction.REDELIVER)
        world.run(_LATE_ORDERS * 0.05)
        world.run_until_consumed(within_s=400)
        if letters := world.letters(NAME):
            left = ", ".join(letter.origin for letter in letters)
            raise world.simulation.violation(f"a healthy handler leaves {left} in DLQ")


class Operator:
    """Makes requests, and mends the handler for some messages."""

    def __init__(self, made: Trial, seed: int) -> None:
        self._world = made.world
        self._service = made.service
        self._random = Random(f"the operator of trial {seed}")

    def begin(self) -> None:
        """Schedule what the operator does."""
        random = self._random
        for _ in range(random.randint(4, 16)):
            self._world.at(random.uniform(2, FAULTY_S + 5), self.ask)
        for _ in range(random.randint(1, 3)):
            self._world.at(random.uniform(2, FAULTY_S), self.mend)

    def ask(self) -> None:
        """Make a request."""
        random, world = self._random, self._world
        redeliver = random.random() < 0.8
        action = RequestAction.REDELIVER if redeliver else RequestAction.DISCARD
        break_order = redeliver and random.random() < 0.1
        world.ask(NAME, action, self._selection(redeliver), break_order=break_order)

    def _selection(self, redeliver: bool) -> LetterSelection:
        random = self._random
        letters = self._world.letters(NAME)
        how = random.choice(["key", "position", "error", "time", "every"])
        if how == "position" and letters:
            return LetterSelection(positions=(random.choice(letters).origin,))
        if how == "error":
            return LetterSelection(error="no stock")
        if how == "time":
            return LetterSelection(after_ms=int(random.uniform(0, self._world.now) * 1000))
        if how == "every" and redeliver:
            return LetterSelection()
        return LetterSelection(keys=(random.choice(_KEYS).encode(),))

    def mend(self) -> None:
        """Let the handler succeed for half of the messages that it could not handle."""
        fates = self._service.fates
        for value in sorted(fates):
            if fates[value] is not Fate.KILLS and self._random.random() < 0.5:
                del fates[value]


def trial(seed: int) -> RequestedTrial:
    """Return the trial of a seed, with an operator."""
    made = subscribed.trial(seed)
    Operator(made, seed).begin()
    return RequestedTrial(made.world, made.service)


def run(seed: int) -> RequestedTrial:
    """Run a trial of a seed."""
    made = trial(seed)
    made.run()
    return made
