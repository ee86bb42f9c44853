"""A table of transitions allows its steps and no others."""

from __future__ import annotations

from enum import Enum

import pytest

from tailrace.machine import Transitions


class Light(Enum):
    RED = "red"
    GREEN = "green"


LIGHT = Transitions[Light](
    "light", [(None, "on", Light.RED), (Light.RED, "go", Light.GREEN), (Light.GREEN, "off", None)]
)


def test_a_step_of_the_table_leads_to_the_next_state() -> None:
    assert LIGHT.move(None, "on", Light.RED) is Light.RED
    LIGHT.check(Light.GREEN, "off", None)


@pytest.mark.parametrize(
    ("before", "cause", "after"),
    [
        (Light.GREEN, "go", Light.RED),
        (Light.RED, "stop", Light.GREEN),
        (None, "on", Light.GREEN),
    ],
)
def test_a_step_that_is_not_in_the_table_is_refused_and_named(
    before: Light | None, cause: str, after: Light
) -> None:
    with pytest.raises(AssertionError, match=f"light: no step .*{cause}"):
        LIGHT.move(before, cause, after)
