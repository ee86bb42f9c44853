"""When what was not answered is said again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tailrace.group.times import Resend, Times


def test_it_is_said_at_once_and_again_less_and_less_often_until_every_two_seconds() -> None:
    resend = Resend(Times(), 10.0)
    said = []
    for _ in range(7):
        assert not resend.due(resend.at - 0.01)
        said.append(resend.at)
        assert resend.due(resend.at)
    waits_s = [after - before for before, after in pairwise(said)]
    assert said[0] == 10.0
    assert waits_s == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
