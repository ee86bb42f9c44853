"""Suggestions for misspelled names."""

from __future__ import annotations

from tailrace.suggestion import did_you_mean


def test_the_most_similar_name_is_suggested() -> None:
    assert did_you_mean("ordrs", ["orders", "border"]) == "did you mean 'orders'?"


def test_case_does_not_matter() -> None:
    assert did_you_mean("ORDRS", ["Orders"]) == "did you mean 'Orders'?"


def test_no_name_is_suggested_when_none_is_similar() -> None:
    assert did_you_mean("x", ["orders"]) == ""
