"""The error tree: as documented, with its builtins, and complete after a pickle."""

from __future__ import annotations

import builtins
import pickle
import re

import pytest

from tailrace import errors
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.fetched import FetchedBatch
from tailrace.errors import Error
from tailrace.message import Partition

NODE = re.compile(r"^ {4}(?P<indent>[│ ]*)[├└]── (?P<name>\w+)(?: \((?P<builtin>\w+)\))?")

PARTITION = Partition("orders", 0, 1)

SAMPLES = [
    errors.UnknownTopic("order", "./data", ["orders", "users"]),
    errors.TopicExists("orders", ["partitions 4, asked for 8"]),
    errors.UnknownGroup("biling", "./data", ["billing"]),
    errors.GroupExists("billing", "orders", "returns"),
    errors.UnknownSubscription("mailr", "./data", ["mailer"]),
    errors.UnknownQueue("jbs", "./data", ["jobs"]),
    errors.UnknownReplay("jobs", "mornin", "./data", ["morning"]),
    errors.UnknownSource("shp", "./data", ["shop"]),
    errors.SubscriptionExists("mailer", ["it has 4 shards, not 2"]),
    errors.QueueExists("jobs", ["it has 4 shards, not 2"]),
    errors.InvalidName("topic", "a/b"),
    errors.InvalidValue("partitions", 5, "1, 2, 3 or a multiple of 4 or 6", "any_count=True"),
    errors.OutOfRange("orders/0.1", 9, 0, 9),
    errors.StorageDeleted("orders/0.1", 9, 12, (1, 2)),
    errors.NotRetained("orders/0.1", 0, 86_400_000, (3_600_000, 90_000_000)),
    errors.Sealed("orders", 1),
    errors.Fenced("producer/shop", 3, 4),
    errors.Conflict("topic/orders", 1, 2, b"{}"),
    errors.Busy("orders is being scaled"),
    errors.WatchExpired(3, 9),
    errors.CorruptBatch("orders/0.1", 4, 8, "0.log", "checksum"),
    errors.MessageTooLarge("the key", 70_000, 65_536, "hub.key_bytes_max"),
    errors.TopicTypeMismatch("orders", "Order(id: int)", "Invoice", ["field 'id' is str, not int"]),
    errors.EncodeError("orders takes Order, not dict", "nothing was written"),
    errors.DecodeError("orders/0.1@4", "Order", "Expected `int`"),
    errors.ConfigError("tailrace.toml: unknown setting hub.x"),
    errors.DeliveryFailed(Delivery(FetchedBatch.listed(PARTITION, 4, 5, [4], [b"c7"]), 0, 5)),
    errors.NothingToRead("no file matches in/*.jsonl"),
    errors.PipelineFailed("lake", ["writer lake/crm: refused"]),
    errors.UnknownHub("./data"),
    errors.IncompatibleHub("./data is of format 9", "this version reads 1"),
    errors.ReadOnlyHub("./data is open read-only", "nothing was written"),
    errors.NotSupported("list segments", "memory", "its log has no segment files"),
    errors.EffectsUnavailable("postgresql://db/shop", "connection refused"),
    errors.BackendUnavailable("no lock after 10s", "held by pid 7"),
    errors.DiskFull("no room"),
    errors.HubClosed("closed"),
    errors.HubReplaced("./data", "there is no directory ./data"),
    errors.OutcomeUnknown("the commit raised"),
]


def drawn() -> dict[str, tuple[str, str | None, bool]]:
    """Each error of the picture: its parent, its builtin, and whether it is marked retryable."""
    tree: dict[str, tuple[str, str | None, bool]] = {}
    path = ["Error"]
    for line in (errors.__doc__ or "").splitlines():
        if node := NODE.match(line):
            del path[1 + len(node["indent"]) // 4 :]
            tree[node["name"]] = (path[-1], node["builtin"], "· retryable" in line)
            path.append(node["name"])
    return tree


def test_the_tree_in_the_docs_shows_every_error_in_its_place() -> None:
    classes = {name: getattr(errors, name) for name in errors.__all__ if name != "Error"}
    assert drawn().keys() == classes.keys()
    for name, (parent, builtin, _) in drawn().items():
        bases = [getattr(errors, parent)]
        bases += [getattr(builtins, builtin)] if builtin else []
        assert list(classes[name].__bases__) == bases, name


def test_the_tree_in_the_docs_shows_which_errors_are_retryable() -> None:
    for name, (parent, _, marked) in drawn().items():
        if parent == "Error":
            assert getattr(errors, name).retryable is marked, name
    assert errors.DiskFull.retryable
    assert not errors.HubClosed.retryable


def test_every_error_is_public_and_documented() -> None:
    found = {
        name for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Error)
    }  # fmt: skip
    assert found == set(errors.__all__)
    assert all(getattr(errors, name).__doc__ for name in errors.__all__)


def test_every_error_is_shown_with_the_module_that_users_import_it_from() -> None:
    assert {getattr(errors, name).__module__ for name in errors.__all__} == {"tailrace.errors"}


def test_every_error_has_a_sample_in_this_file() -> None:
    assert {type(sample).__name__ for sample in SAMPLES} == set(errors.__all__) - {"Error"}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_pickles_with_all_it_carries(error: Error) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.args == error.args
    assert vars(copy) == vars(error)
    assert copy.retryable == error.retryable


def test_an_unknown_topic_names_the_nearest_and_the_command_that_creates_it() -> None:
    assert str(errors.UnknownTopic("order", "./data", ["orders", "users"])) == (
        "no topic 'order' in ./data · did you mean 'orders'? (2 topics here)"
        " · create it: tailrace topic create order --partitions 4"
    )
    assert "did you mean" not in str(errors.UnknownTopic("x", "./data", ["orders"]))


def test_an_unknown_topic_suggests_internal_topics_only_for_an_internal_name() -> None:
    known = ["orders", "tailrace.audit"]
    user = errors.UnknownTopic("order", "./data", known)
    assert user.known == ["orders"]
    assert "did you mean 'orders'? (1 topic here)" in str(user)
    internal = errors.UnknownTopic("tailrace.audits", "./data", known)
    assert internal.known == known
    assert "did you mean 'tailrace.audit'? (2 topics here)" in str(internal)


def test_a_failed_delivery_names_its_group_in_the_command_that_skips_it() -> None:
    delivery: Delivery[bytes] = Delivery(FetchedBatch.listed(PARTITION, 4, 5, [4], [b"c7"]), 0, 5)
    named = errors.DeliveryFailed(delivery, "billing")
    assert named.group == "billing"
    assert f"tailrace group skip billing {named.position} --reason" in str(named)
    assert "group skip GROUP " in str(errors.DeliveryFailed(delivery))


def test_an_unknown_group_names_the_nearest_and_how_to_create_it() -> None:
    assert str(errors.UnknownGroup("biling", "./data", ["billing"])) == (
        "no group 'biling' in ./data · did you mean 'billing'? (1 group here)"
        " · create it by consuming: tailrace tail TOPIC --group biling"
    )


@pytest.mark.parametrize(
    ("error", "valid"),
    [
        (errors.OutOfRange("orders/0.1", 9, 2, 9), "valid: 2 <= offset < 9"),
        (
            errors.OutOfRange("orders/0.1", 5, 2, 9, 7),
            "the offset is in a gap: the next record is at 7",
        ),
        (
            errors.OutOfRange("orders/0.1", 0, 0, 0),
            "the partition is empty; its next record gets offset 0",
        ),
    ],
)
def test_an_offset_out_of_range_names_the_valid_range(error: errors.OutOfRange, valid: str) -> None:
    assert str(error).startswith(f"no record at orders/0.1@{error.offset} · {valid}")


def test_records_that_are_not_retained_name_the_times_that_are() -> None:
    error = errors.NotRetained("orders/0.1", 0, 86_400_000, (3_600_000, 90_000_000))
    assert str(error) == (
        "orders/0.1 no longer has all records from 1970-01-01T00:00:00.000Z to"
        " 1970-01-02T00:00:00.000Z"
        " · retained: 1970-01-01T01:00:00.000Z to 1970-01-02T01:00:00.000Z"
        " · start the range at 1970-01-01T01:00:00.000Z or later"
    )
    assert "retained: no records" in str(errors.NotRetained("orders/0.1", 0, 10**18, None))


def test_long_values_are_shortened_in_the_text_and_complete_in_the_attributes() -> None:
    name = "x" * 300
    assert len(str(errors.InvalidName("topic", name))) < 200
    assert errors.InvalidName("topic", name).name == name
    assert len(str(errors.InvalidValue("key", name, "shorter"))) < 200
    assert errors.InvalidValue("key", name, "shorter").value == name


def test_the_error_of_an_existing_topic_names_the_differences() -> None:
    differs = errors.TopicExists("orders", ["partitions 4, asked for 8"])
    assert "with another definition · partitions 4, asked for 8" in str(differs)
    assert "exist_ok=True" in str(errors.TopicExists("orders"))
