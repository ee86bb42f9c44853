"""What a reader must not report is refused with a sentence, before anything of it is stored."""

from __future__ import annotations

import logging
from datetime import date
from typing import Any

import pytest

from tailrace import Hub, InvalidValue, Source
from tailrace.hub.topic import Topic
from tailrace.source.reader import Batch, Preview, Split
from tailrace.testing import MemoryBackend
from tests.unit.source.scripted_reader import Begin, ScriptedReader, finish, rows, scripted, values

JSON = "JSON types: objects, arrays, text, numbers, true, false and null"


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ([1], "what read yields for split 'a' is of type list · valid: a Batch or None"),
        (
            Batch([{"id": 1}], 1),  # type: ignore[arg-type]
            "records of a batch of split 'a' is of type list · valid: what from_records returns",
        ),
        (
            Batch(rows("a1", "a2"), 1, identities=[b"x"]),
            "the number of identities of a batch of split 'a' is 1 · valid: 2, one for each record",
        ),
        (Batch(None, {1j}), f"position of a batch of split 'a' is {{1j}} · valid: {JSON}"),
        (
            Batch(None, 1, children=("b",)),  # type: ignore[arg-type]
            "a split is of type str · valid: a Split",
        ),
        (
            Batch(None, 1, children=(Split("b", follows="a"),)),  # type: ignore[arg-type]
            "split 'b' cannot be stored: Expected `array`, got `str` - at `$.follows`",
        ),
        (
            Batch(None, 1, children=(Split("b", {"x": object()}),)),
            "split 'b' cannot be stored: Encoding objects of type object is unsupported",
        ),
        (
            Batch(None, 1, children=(Split("b", bound="other"),)),
            "bound of split 'b' is 'other' · valid: that of the split that reports it, or None",
        ),
    ],
)
def test_what_a_reader_must_not_yield_is_named_and_not_stored(
    begin: Begin, log: Topic[Any], batch: Any, said: str
) -> None:
    run = begin(scripted({"a": [batch]}))
    with pytest.raises(InvalidValue) as caught:
        run.step()
    assert str(caught.value).startswith(said)
    assert values(log) == []
    finish(begin(scripted({"a": [Batch(rows("a1"), 1)]})))
    assert values(log) == ["a1"]


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        ([Split("a"), Split("a", {"x": 1})], "id of a split is 'a' · valid: an id that no other"),
        (["a"], "a split is of type str"),
    ],
)
def test_first_splits_that_cannot_be_are_named(begin: Begin, splits: list[Any], said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        begin(scripted({}, *splits))
    assert str(caught.value).startswith(said)


def test_a_reader_gets_what_it_reported_as_it_is_stored_also_from_the_same_task(
    begin: Begin,
) -> None:
    child = Split("b", {"day": date(2026, 11, 19), "range": (1, 2)}, follows=("a",))
    reading = scripted(
        {"a": [Batch(None, (1, 2), children=(child,), finished=True)], "b": []}, Split("a")
    )
    run = begin(reading)
    while not run.done:
        run.step()
    assert reading.followed["b"] == {"a": [1, 2]}
    assert reading.opened["b"].data == {"day": "2026-11-19", "range": [1, 2]}
    run.close()


def test_a_run_until_now_tells_of_splits_that_follow_one_that_nobody_has_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Previewed(ScriptedReader, frozen=True):
        def check(self) -> Preview:
            return Preview("a script", [])

    reading = scripted({"a": []}, Split("a", follows=("never",)))
    with Hub.from_backend(MemoryBackend()) as hub, caplog.at_level(logging.WARNING):
        Source("s", Previewed(reading)).run(hub, once=True)
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith(
        "source s: split 'a' was not read: it follows 'never', which no split has reported"
    )
