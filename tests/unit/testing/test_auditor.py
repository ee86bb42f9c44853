"""The auditor finds each kind of broken promise, and no other."""

from __future__ import annotations

import random

import pytest

from tailrace.testing.auditor import Audit, Auditor, Numbered


def audit_of(pushed: str, seen: str) -> Audit:
    """Messages written like `a1@5`: key a, number 1, read or promised at position 5."""
    auditor = Auditor()
    for message in pushed.split():
        auditor.pushed(message[0], int(message[1]), message[3:])
    for message in seen.split():
        auditor.saw(message[0], int(message[1]), message[3:])
    return auditor.audit()


def test_an_audit_is_clean_when_every_key_comes_in_order() -> None:
    audit = audit_of("b1@9 a1@0 a2@1", "a1@0 b1@9 a2@1")
    assert audit.well
    assert (audit.pushed, audit.seen) == (3, 3)


def test_a_message_without_a_receipt_is_allowed() -> None:
    audit = audit_of("a1@0", "a1@0 a2@1")
    assert audit.well
    assert (audit.pushed, audit.seen) == (1, 2)


def test_a_receipt_without_its_message_is_a_loss() -> None:
    audit = audit_of("a1@0 a2@1", "a1@0")
    assert not audit.well
    assert audit.lost == {Numbered("a", 2)}
    assert not audit.displaced


def test_a_message_that_is_not_where_its_receipt_says_is_displaced() -> None:
    audit = audit_of("a1@0 a2@1", "a1@0 a2@7")
    assert not audit.well
    assert audit.displaced == {Numbered("a", 2)}
    assert not audit.lost


@pytest.mark.parametrize("seen", ["a1@0 a1@1", "a1@0 a1@0"], ids=["stored", "read"])
def test_a_message_that_comes_twice_is_a_duplicate_and_counts_once(seen: str) -> None:
    audit = audit_of("a1@0", seen)
    assert not audit.well
    assert audit.doubled == {Numbered("a", 1)}
    assert audit.seen == 1


def test_two_receipts_for_two_positions_are_a_duplicate() -> None:
    audit = audit_of("a1@0 a1@1", "a1@0")
    assert audit.doubled == {Numbered("a", 1)}


def test_a_key_is_out_of_order_when_a_lower_number_comes_first_after_a_higher() -> None:
    audit = audit_of("", "a1@0 b2@0 a3@1 b1@1 a2@2 b3@2 c1@0 c3@1")
    assert not audit.well
    assert audit.disordered == {"a", "b"}


def test_a_repeated_message_is_not_out_of_order() -> None:
    audit = audit_of("", "a1@0 a2@1 a1@0")
    assert audit.disordered == set()
    assert audit.doubled == {Numbered("a", 1)}


def test_any_single_swap_within_a_key_is_found() -> None:
    random_ = random.Random(7)
    for _ in range(100):
        numbers = list(range(1, 50))
        first, second = sorted(random_.sample(range(len(numbers)), 2))
        numbers[first], numbers[second] = numbers[second], numbers[first]
        auditor = Auditor()
        for number in numbers:
            auditor.saw("key", number, f"t/0.0@{number}")
        assert auditor.audit().disordered == {"key"}
