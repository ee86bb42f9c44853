"""The messages of sync topics have the JSON schema that the page on source tasks shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

import tailrace
from tailrace import Source
from tailrace.log.columns import records_of
from tailrace.message import Partition
from tailrace.source.reader import Split
from tailrace.source.task import leading
from tailrace.source.task.messages import (
    MessageParts,
    MessageType,
    OwnedUnits,
    SharedUnits,
    SyncMessage,
    TaskState,
    encode,
)
from tailrace.source.unit_status import UnitStatus
from tailrace.testing.faults import Faults
from tailrace.testing.sources.script import ScriptedBatch, SourceScript
from tailrace.testing.sources.world import MESSAGE_BYTES, SourceWorld
from tailrace.topic.reading import batches_within
from tests.simulation.sourced import run
from tests.support.processes import Child, Report
from tests.support.sources.split_reader import SplitReader
from tests.support.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "source-tasks.md"
SEEDS = 12
SPLITS = 20_000


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    [shown] = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    document = json.loads(shown)
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


def assert_valid(schema: Draft202012Validator, values: list[bytes]) -> list[dict[str, Any]]:
    """Fail unless every value is a message, and of one task alone if it should be; return them."""
    messages: list[dict[str, Any]] = [json.loads(value) for value in values]
    for message in messages:
        errors = [error.message for error in schema.iter_errors(message)]
        assert not errors, message
        if message["type"] in ("regular", "rebalance_answer"):
            assert [state["taskID"] for state in message["connectorState"]] == [message["taskID"]]
    return messages


def test_the_schema_has_the_structure_of_an_incremental_message(
    schema: Draft202012Validator,
) -> None:
    """That of the protocol on which sources are based."""
    document: Any = schema.schema
    state = document["$defs"]["state"]
    incremental = {"syncEpoch", "taskID", "messageTimestamp", "connectorState"}
    assert incremental <= document["properties"].keys()
    assert incremental <= set(document["required"])
    assert {"taskID", "stateTimestamp", "data", "share"} <= state["properties"].keys()
    assert set(state["required"]) == {"taskID", "stateTimestamp", "sequence"}
    assert document["properties"]["connectorState"]["type"] == "array"
    assert {state["properties"][name]["type"] for name in ("data", "share")} == {"object"}


def test_the_schema_names_every_type_status_and_field_and_no_other(
    schema: Draft202012Validator,
) -> None:
    document: Any = schema.schema
    state = document["$defs"]["state"]["properties"]
    status = state["data"]["properties"]["units"]["additionalProperties"]["enum"]
    assert document["properties"]["type"]["enum"] == [each.value for each in MessageType]
    assert status == [each.value for each in UnitStatus]
    assert list(document["properties"]) == list(document["required"]) == fields(SyncMessage)
    assert list(state) == fields(TaskState)


def fields(declared: type[msgspec.Struct]) -> list[str]:
    return list(declared.__struct_encode_fields__)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "other"},
        {"taskID": ""},
        {"messageTimestamp": 1763510400},
        {"positions": {}},
        {"connectorState": []},
        {"type": "regular", "connectorState": "both"},
        {"connectorState": [{"taskID": "t"}]},
    ],
)
def test_what_is_no_message_does_not_have_the_schema(
    schema: Draft202012Validator, change: dict[str, Any]
) -> None:
    [valid] = assert_valid(schema, encode(message_with(2, 10), 1 << 20))
    if change.get("connectorState") == "both":
        change = change | {"connectorState": valid["connectorState"]}
    assert not schema.is_valid(valid | change)


def storm(splits: int) -> SourceScript:
    """Return a system whose only split becomes many at once."""
    children = tuple(Split(f"child {number}", follows=("first",)) for number in range(splits))
    batches = {each.id: (ScriptedBatch(finished=True),) for each in children}
    return SourceScript(
        [Split("first")],
        batches | {"first": (ScriptedBatch(children=children, at_s=5.0, finished=True),)},
    )


def stormy_world() -> SourceWorld:
    """Return a world that has read a storm of splits, with tasks that die and come back."""
    world = SourceWorld(7, storm(600), Faults(crash_every_s=6))
    for name in "abc":
        world.task_process(name).read()
    world.run(20)
    world.run_until_read()
    return world


def test_messages_of_simulated_tasks_that_join_share_and_die_have_the_schema(
    schema: Draft202012Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "SNAPSHOT_EVERY", 40)
    messages = []
    for world in (*(run(seed).world for seed in range(SEEDS)), stormy_world()):
        records = world.storage.records[Partition("shop_connector_sync", 0, 0)]
        values = [each.value for each in records]
        assert max(map(len, values)) <= MESSAGE_BYTES
        messages += assert_valid(schema, values)
    assert {each["type"] for each in messages} == {each.value for each in MessageType}
    states = [state for each in messages for state in each["connectorState"]]
    assert any(each["parts"] > 1 for each in messages)
    assert any(state["share"]["units"] for state in states)
    owned = {status for state in states for status in state["data"]["units"].values()}
    assert owned == {each.value for each in UnitStatus}


def read_numbers(report: Report, directory: Path, rows_file: str) -> None:
    """Child: one task of a source that never ends."""
    with tailrace.open(directory, sync="none") as hub:
        report("started")
        reader = SplitReader(tuple(f"split {n}" for n in range(9)), rows_file=rows_file)
        Source("numbers", reader).run(hub)


def test_messages_of_processes_that_join_and_are_killed_have_the_schema(
    schema: Draft202012Validator, tmp_path: Path
) -> None:
    (tmp_path / "rows").write_text("5")
    arguments = (tmp_path / "hub", str(tmp_path / "rows"))
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        tasks = [Child(read_numbers, *arguments) for _ in range(2)]
        until(lambda: has_sizes(hub, [4, 5]), "the splits are not shared")
        list(tasks[0].kill())
        until(lambda: has_sizes(hub, [9]), "the splits of the killed task have no owner")
        list(tasks[1].kill())
        values = sync_values(hub)
    messages = assert_valid(schema, values)
    kinds = {each["type"] for each in messages}
    assert kinds == {"regular", "rebalance_answer", "new_epoch"}
    assert any(state["share"]["units"] for each in messages for state in each["connectorState"])
    epochs = [each["syncEpoch"] for each in messages if each["type"] == "new_epoch"]
    assert len(set(epochs)) == len(epochs) >= 2


def has_sizes(hub: tailrace.Hub, sizes: list[int]) -> bool:
    """True if the members of the newest epoch own that many units each, by their last states."""
    members: dict[str, int] = {}
    for message in map(json.loads, sync_values(hub)):
        if message["type"] == "new_epoch":
            members = {}
        for state in message["connectorState"]:
            if message["type"] == "new_epoch" or state["taskID"] in members:
                members[state["taskID"]] = len(state["data"]["units"])
    return sorted(members.values()) == sizes


def sync_values(hub: tailrace.Hub) -> list[bytes]:
    if "numbers_connector_sync" not in hub.topics():
        return []
    log, where = hub.backend.log, Partition("numbers_connector_sync", 0, 0)
    batches = batches_within(log, where, 0, log.bounds(where).end, 8 << 20)
    return [record.value for records in batches for record in records_of(records)]


def message_with(tasks: int, units: int) -> SyncMessage:
    """Return a message of an epoch of so many tasks, the first of which has so many units."""
    now = datetime(2026, 11, 19, tzinfo=UTC)
    ids = (f"range/public.order_lines_of_the_year/{number:08}" for number in range(units))
    owned = {unit: list(UnitStatus)[number % 4] for number, unit in enumerate(ids)}
    shared = {f"{unit}/again": "t1" for number, unit in enumerate(owned) if number % 3 == 0}
    states = [TaskState("t0", now, 9, OwnedUnits(owned), SharedUnits(shared))]
    states += (TaskState(f"t{number}", now, 1) for number in range(1, tasks))
    return SyncMessage(
        sync_epoch="0123456789abcdef0123456789abcdef",
        task_id="t0",
        message_timestamp=now,
        connector_state=tuple(states),
        type=MessageType.NEW_EPOCH,
        generation=3,
        epoch_number=12,
        sequence=9,
    )


@pytest.mark.parametrize("bytes_max", [4000, 64 << 10, 1 << 20])
def test_the_parts_of_a_state_of_20_000_splits_have_the_schema_and_the_size(
    schema: Draft202012Validator, bytes_max: int
) -> None:
    whole = message_with(3, SPLITS)
    values = encode(whole, bytes_max)
    assert len(values) > 1
    assert max(map(len, values)) <= bytes_max
    assert_valid(schema, values)
    [joined] = rejoined(values)
    assert msgspec.structs.replace(joined, part=1, parts=1) == whole


def rejoined(values: list[bytes]) -> Iterator[SyncMessage]:
    parts = MessageParts()
    return (each for each in map(parts.add, values) if each is not None)
