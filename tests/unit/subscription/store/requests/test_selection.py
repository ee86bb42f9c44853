"""A request is resolved to keys and letters by what is stored when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Chunk
from tailrace.delivery.outcome import SUCCESS, CallOutcome, OutcomeKind
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.requests.request import (
    LetterPlace,
    RequestAction,
    RequestTarget,
)
from tailrace.subscription.store.queue_scan import key_places
from tailrace.subscription.store.requests import selection as module
from tailrace.subscription.store.requests.letters import open_letters, read_letters
from tailrace.subscription.store.requests.selection import (
    LetterSelection,
    SelectedLetters,
    select_letters,
)
from tests.support.letter_requests import ask, key_target, letters_target
from tests.support.shards import REJECTED, Shop, stored

DISCARD, REDELIVER = RequestAction.DISCARD, RequestAction.REDELIVER
BOTH = pytest.mark.parametrize("policy", list(OnDeadLetter))


def rejected(why: str) -> CallOutcome:
    return CallOutcome(OutcomeKind.REJECT, why)


def shop_with_letters(policy: OnDeadLetter = OnDeadLetter.BLOCK) -> Shop:
    """Key a: 1 and 2 fail with A. Key b: 3 fails with B, 4 with A. Without a key: 5 fails with A.

    Under ``block``, 2 and 4 follow unattempted. Dead letters of 3 and later are a minute younger.
    """
    shop = Shop(policy=policy)
    errors = {1: "A", 2: "A", 3: "B", 4: "A", 5: "A"}
    shop.push("a", 1, 2)
    owner = shop.owner()
    owner.run(lambda value: rejected(f"error {errors[value]}"))
    shop.now += 60
    shop.push("b", 3, 4)
    shop.push(None, 5)
    owner.machine.wake(owner.stored.streams(0).mq)
    owner.run(lambda value: rejected(f"error {errors[value]}"))
    return shop


def select(
    shop: Shop, action: RequestAction, *, break_order: bool = False, **conditions: Any
) -> SelectedLetters:
    selection = LetterSelection(**conditions)
    return select_letters(
        shop.backend, stored(shop.backend), selection, action, break_order=break_order
    )


def chosen(shop: Shop, selected: SelectedLetters) -> dict[str | None, list[int]]:
    """Return the values of the letters that are named, by key; empty for all of a key."""
    values = shop.queued(Queue.DLQ)
    return {
        (target.key.decode() if target.key else None): [
            values[place.offset] for place in target.letters
        ]
        for target in selected.targets.get(0, ())
    }


def test_the_letters_of_a_subscription_are_read_with_key_origin_error_and_time() -> None:
    shop = shop_with_letters()
    letters = list(read_letters(shop.backend, stored(shop.backend)))
    assert [(each.key, each.origin[-2:], each.error[:7]) for each in letters] == [
        (b"a", "@0", "error A"),
        (b"a", "@1", "an earl"),
        (b"b", "@2", "error B"),
        (None, "@4", "error A"),
        (b"b", "@3", "an earl"),
    ]
    assert letters[4].time_ms - letters[0].time_ms == 60_000
    assert len(list(open_letters(shop.backend, stored(shop.backend)).waiting())) == 5


def test_a_redelivery_by_key_names_the_key_under_block_and_its_letters_under_continue() -> None:
    shop = shop_with_letters()
    selected = select(shop, REDELIVER, keys=(b"a",))
    assert selected.targets == {0: [RequestTarget(b"a")]}
    assert (selected.letters, selected.keys) == (2, 1)
    shop = shop_with_letters(OnDeadLetter.CONTINUE)
    assert chosen(shop, select(shop, REDELIVER, keys=(b"a",))) == {"a": [1, 2]}


def test_only_the_letters_of_the_keys_are_read_and_only_in_their_partitions() -> None:
    shop = Shop(partitions=8, shards=1)
    for number in range(40):
        shop.push(f"k{number}", number)
    shop.owner().run(lambda value: REJECTED)
    subscription, log = stored(shop.backend), shop.backend.log
    (letter,) = read_letters(shop.backend, subscription, (b"k7",))
    assert letter.key == b"k7"
    seen, whole = set[Partition](), log.read

    def read(partition: Partition, start: int, bytes_max: int, end: int | None = None) -> Chunk:
        seen.add(partition)
        return whole(partition, start, bytes_max, end)

    log.read = read  # type: ignore[method-assign]
    assert select(shop, REDELIVER, keys=(b"k7",)).letters == 1
    assert seen == set(key_places(subscription, b"k7").dlq)


@BOTH
def test_a_redelivery_by_error_selects_the_keys_whose_first_letter_has_it(
    policy: OnDeadLetter,
) -> None:
    shop = shop_with_letters(policy)
    selected = select(shop, REDELIVER, error="error A")
    assert selected.targets[0][0].key == b"a"
    assert [target.key for target in selected.targets[0]] == [b"a", None]
    assert selected.skipped == (0 if policy is OnDeadLetter.BLOCK else 1)
    assert select(shop, REDELIVER, error_pattern="^error [AB]$").keys == 2


@BOTH
def test_a_redelivery_by_time_selects_the_keys_whose_first_letter_is_of_that_time(
    policy: OnDeadLetter,
) -> None:
    shop = shop_with_letters(policy)
    between = 1_700_000_030_000
    assert [each.key for each in select(shop, REDELIVER, before_ms=between).targets[0]] == [b"a"]
    after = select(shop, REDELIVER, after_ms=between)
    assert [each.key for each in after.targets[0]] == [b"b", None]


@BOTH
def test_a_position_is_that_of_the_message_or_of_its_letter(policy: OnDeadLetter) -> None:
    shop = shop_with_letters(policy)
    for position in ("orders/0.0@0", "tailrace.dead-letter-queue.crm/0.0@0"):
        selected = select(shop, REDELIVER, positions=(position,))
        assert chosen(shop, selected) == {"a": [1]}
        assert selected.letters == 1
    assert chosen(shop, select(shop, REDELIVER, positions=("orders/0.0@4",))) == {None: [5]}


@BOTH
def test_a_position_behind_others_of_its_key_is_refused_unless_the_order_may_break(
    policy: OnDeadLetter,
) -> None:
    shop = shop_with_letters(policy)
    with pytest.raises(InvalidValue, match=r"orders/0.0@1 is behind other dead letters of key 'a'"):
        select(shop, REDELIVER, positions=("orders/0.0@1",))
    assert chosen(shop, select(shop, REDELIVER, positions=("orders/0.0@1",), break_order=True)) == {
        "a": [2]
    }
    both = ("orders/0.0@1", "orders/0.0@0")
    assert chosen(shop, select(shop, REDELIVER, positions=both)) == {"a": [1, 2]}


@BOTH
def test_a_discard_selects_exactly_the_letters_that_meet_the_conditions(
    policy: OnDeadLetter,
) -> None:
    shop = shop_with_letters(policy)
    selected = select(shop, DISCARD, positions=("orders/0.0@1", "orders/0.0@4"))
    assert chosen(shop, selected) == {"a": [2], None: [5]}
    by_error = chosen(shop, select(shop, DISCARD, error="A"))
    attempted = {"a": [1, 2], "b": [4], None: [5]}
    assert by_error == (attempted if policy is OnDeadLetter.CONTINUE else {"a": [1], None: [5]})


def test_a_discard_by_key_is_for_the_letters_that_are_there_now() -> None:
    shop = shop_with_letters()
    assert chosen(shop, select(shop, DISCARD, keys=(b"a",))) == {"a": [1, 2]}
    shop = shop_with_letters(OnDeadLetter.CONTINUE)
    assert chosen(shop, select(shop, DISCARD, keys=(b"a",))) == {"a": [1, 2]}


def test_a_discard_of_a_key_with_many_letters_names_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NAMED_MAX", 1)
    selected = select(shop_with_letters(), DISCARD, keys=(b"a",))
    assert selected.targets == {0: [RequestTarget(b"a", until=LetterPlace(0, 0, 1))]}
    assert selected.letters == 2


def test_the_last_error_counts_after_a_redelivery_that_failed() -> None:
    shop = shop_with_letters()
    ask(shop, REDELIVER, key_target("a"))
    shop.owner().run(lambda value: rejected("error C"))
    assert [each.key for each in select(shop, REDELIVER, error="C").targets[0]] == [b"a"]
    assert b"a" not in [each.key for each in select(shop, REDELIVER, error="A").targets[0]]


def test_letters_that_are_resolved_are_not_selected() -> None:
    shop = shop_with_letters()
    ask(shop, REDELIVER, letters_target("a", 0))
    shop.owner().run(lambda value: SUCCESS)
    with pytest.raises(InvalidValue, match="pending dead letter"):
        select(shop, REDELIVER, positions=("orders/0.0@0",))
    assert chosen(shop, select(shop, REDELIVER, positions=("orders/0.0@1",))) == {"a": [2]}


def test_unknown_keys_and_positions_are_refused_with_the_command_that_lists() -> None:
    shop = shop_with_letters()
    with pytest.raises(InvalidValue, match="tailrace dlq crm list"):
        select(shop, REDELIVER, keys=(b"x",))
    with pytest.raises(InvalidValue, match="tailrace dlq crm list"):
        select(shop, DISCARD, positions=("orders/0.0@77",))
    with pytest.raises(InvalidValue, match="without other conditions"):
        LetterSelection(positions=("orders/0.0@0",), error="A")
    with pytest.raises(InvalidValue, match="RE2"):
        LetterSelection(error_pattern="(")


def test_letters_of_several_shards_become_targets_of_each() -> None:
    shop = Shop(partitions=4, shards=2)
    for number in range(20):
        shop.push(f"k{number}", number)
    for shard in range(2):
        shop.owner(shard).run(lambda value: REJECTED)
    selected = select(shop, REDELIVER)
    assert (selected.letters, selected.keys) == (20, 20)
    assert {len(targets) > 0 for targets in selected.targets.values()} == {True}
    assert sum(map(len, selected.targets.values())) == 20
    assert set(selected.targets) == {0, 1}


def test_what_is_too_much_for_one_request_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SELECTED_MAX", 2)
    shop = shop_with_letters()
    selected = select(shop, REDELIVER)
    assert (selected.keys, selected.letters, selected.left) == (2, 4, 1)


def test_many_letters_of_a_key_are_discarded_by_several_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TARGETS_MAX", 2)
    shop = Shop(policy=OnDeadLetter.CONTINUE)
    shop.push("a", 1, 2, 3, 4, 5)
    shop.owner().run(lambda value: REJECTED)
    selected = select(shop, DISCARD, error="negative")
    assert [len(target.letters) for target in selected.targets[0]] == [2, 2, 1]
    assert (selected.letters, selected.keys, selected.left) == (5, 1, 0)
    assert select(shop, REDELIVER, keys=(b"a",)).left == 3
