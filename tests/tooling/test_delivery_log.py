"""The verdict on the deliveries of consumers finds each kind of violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.delivery_log import DeliveryLog, Fault, Incident, Line, Verdict

SECOND_NS = 1_000_000_000


def _line(at_s: float, number: int, *, offset: int | None = None, marked: bool = False) -> Line:
    position = number if offset is None else offset
    return Line(int(at_s * SECOND_NS), 1, number, 0, 3, position, marked)


PUSHED = [_line(0, number) for number in range(3)]


def _verdict(tmp_path: Path, *seen: list[Line], incidents: tuple[Incident, ...] = ()) -> Verdict:
    files = [tmp_path / f"seen-{number}" for number in range(len(seen))]
    for file, lines in zip(files, seen, strict=True):
        DeliveryLog(file).write(lines)
    return Verdict.of(PUSHED, files, incidents)


def test_the_verdict_is_clean_when_each_message_is_seen_once_in_order(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, [_line(1, 0), _line(3, 2)], [_line(2, 1)])
    assert verdict.wrong == {}
    assert verdict.audit.well


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        ([_line(1, 0), _line(2, 2)], {"lost": 1}),
        ([_line(1, 0), _line(2, 1, offset=7), _line(3, 2)], {"displaced": 1}),
        ([_line(1, 0), _line(2, 2), _line(3, 1)], {"disordered": 1}),
        ([_line(1, 0), _line(2, 1), _line(3, 2), _line(4, 2, marked=True)], {"uncaused": 1}),
        (
            [_line(1, 0), _line(2, 1), _line(3, 2), _line(4, 2)],
            {"unmarked": 1, "uncaused": 1},
        ),
    ],
)
def test_each_violation_is_found(tmp_path: Path, seen: list[Line], wrong: dict[str, int]) -> None:
    assert _verdict(tmp_path, seen).wrong == wrong


def test_a_repeated_message_is_counted_with_the_incident_of_the_consumer_that_had_it(
    tmp_path: Path,
) -> None:
    killed = Incident(0, Fault.KILLED, 4 * SECOND_NS)
    before = [_line(1, 0), _line(2, 1), _line(3, 2)]
    after = [_line(5, 1, marked=True), _line(6, 2, marked=True)]
    repeats = _verdict(tmp_path, before, after, incidents=(killed,)).repeats
    assert (repeats.most, repeats.oldest_s) == (2, 2.0)
    assert (repeats.unmarked, repeats.uncaused) == (set(), set())


def test_a_consumer_that_wakes_may_repeat_messages_that_another_has_consumed(
    tmp_path: Path,
) -> None:
    paused = Incident(0, Fault.PAUSED, 2 * SECOND_NS, 6 * SECOND_NS)
    sleeper, other = [_line(1, 0), _line(6.1, 1)], [_line(4, 1, marked=True), _line(5, 2)]
    assert _verdict(tmp_path, sleeper, other, incidents=(paused,)).wrong == {}


def test_an_incident_of_another_consumer_does_not_excuse_a_repeat(tmp_path: Path) -> None:
    killed = Incident(1, Fault.KILLED, 4 * SECOND_NS)
    seen = [_line(1, 0), _line(2, 1), _line(3, 2), _line(5, 2, marked=True)]
    assert _verdict(tmp_path, seen, [], incidents=(killed,)).wrong == {"uncaused": 1}
