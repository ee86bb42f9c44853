"""The intervals at which an unanswered message is repeated."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tailrace.group.protocol.times import Resend, Times


def test_a_message_is_repeated_at_growing_intervals_up_to_two_seconds() -> None:
    resend = Resend(Times(), 10.0)
    sent_at = []
    for _ in range(7):
        assert not resend.due(resend.at - 0.01)
        sent_at.append(resend.at)
        assert resend.due(resend.at)
    waits_s = [after - before for before, after in pairwise(sent_at)]
    assert sent_at[0] == 10.0
    assert waits_s == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
