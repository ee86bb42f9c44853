"""Whatever operators ask for, and whatever happens meanwhile: order, one effect, one audit line."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis.stateful import rule
from hypothesis.strategies import booleans, integers, sampled_from

from tailrace.delivery.dead_letters.letter import DeadLetter
from tailrace.errors import InvalidValue
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.requests.letters import open_letters
from tailrace.subscription.store.requests.making import Requester, put_requests
from tailrace.subscription.store.requests.selection import LetterSelection
from tests.support.counts import count
from tests.support.letter_requests import audited, nothing_is_left
from tests.support.shards import NAME, REJECTED, stored
from tests.unit.subscription.shard.test_shard_model import KEYS, ShardModel

ANN = Requester("ann@host", 1, "dlq")


class RequestModel(ShardModel):
    """A shard as in the other model, with an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.discarded: set[int] = set()
        self.passed: set[int] = set()
        """Messages that later ones of their key need not wait for."""

    def letters(self) -> list[DeadLetter]:
        """Return the pending dead letters."""
        return list(open_letters(self.shop.backend, stored(self.shop.backend)).waiting())

    @rule(
        action=sampled_from(RequestAction),
        key=sampled_from(KEYS),
        by_position=booleans(),
        number=integers(0, 3),
        break_order=booleans(),
    )
    def ask(
        self,
        action: RequestAction,
        key: str | None,
        by_position: bool,
        number: int,
        break_order: bool,
    ) -> None:
        """Redeliver or discard one letter, those of a key, or all; first make some."""
        self.work([REJECTED] * 3)
        self.commit()
        name = None if key is None else key.encode()
        letters = [each for each in self.letters() if name is None or each.record.key == name]
        if not letters:
            return
        if by_position:
            letter = letters[number % len(letters)]
            selection = LetterSelection(positions=(letter.origin,))
            same = [each for each in letters if each.record.key == letter.record.key]
            letters = same if break_order else [letter]
        else:
            selection = LetterSelection(keys=() if name is None else (name,))
        with suppress(InvalidValue):
            self._put(action, selection, break_order)
            values = {int(each.record.value) for each in letters}
            if action is RequestAction.DISCARD:
                self.discarded |= values
            if action is RequestAction.DISCARD or break_order:
                self.passed |= values
        self.owner.read_requests()
        self.call()

    def _put(self, action: RequestAction, selection: LetterSelection, break_order: bool) -> None:
        backend = self.shop.backend
        made = put_requests(
            backend, NAME, selection, action, ANN, now_ms=self.asked, break_order=break_order
        )
        self.asked += made.entries

    def _check_call(self, value: int) -> None:
        key = self.keys[value]
        if key is None or value in self.succeeded:
            return
        continues = self.shop.policy is OnDeadLetter.CONTINUE
        dead = set(self.shop.queued(Queue.DLQ)) if continues else set()
        for earlier in self.pushed[key][: self.pushed[key].index(value)]:
            assert earlier in self.succeeded | dead | self.passed, (
                f"{value} is called before {earlier}"
            )

    def _check_dead(self, dead: list[int]) -> None:
        """Redeliver what is left: nothing stays."""
        if self.letters():
            self._put(RequestAction.REDELIVER, LetterSelection(), False)
        self.owner.read_requests()
        for _ in range(100):
            self.call()
            for value in list(self.owner.in_flight):
                self.owner.finish(value)
                self.succeeded.add(value)
            self.owner.commit()
        assert self.letters() == []
        assert self.succeeded | self.discarded == set(self.keys)
        assert len(self.owner.machine.lag.lanes[Queue.DLQ]) == 0
        assert len(audited(self.shop)) == self.asked
        assert nothing_is_left(self.shop)
        assert self.shop.backend.table.scan("subscription-attempts/crm") == []


TestRequestModel: Any = RequestModel.TestCase
TestRequestModel.settings = settings(
    max_examples=count("request_histories", test=30, soak=1000),
    stateful_step_count=40,
    deadline=None,
)
