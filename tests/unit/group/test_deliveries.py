"""What a user of a group sees: loops, acknowledgements, errors, callbacks, batches, async."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import (
    BackendUnavailable,
    DecodeError,
    DeliveryFailed,
    Error,
    InvalidName,
    InvalidValue,
)
from tailrace.group.asked import Asked
from tailrace.group.definition import consumer_name
from tailrace.group.deliveries import Deliveries
from tailrace.group.delivery import Delivery
from tailrace.group.session import Session
from tailrace.hub import Hub
from tailrace.message import Message, Mode, Op, Partition
from tailrace.payload import Payload
from tailrace.settings import HubSettings
from tailrace.topic.ledger import Progress
from tailrace.topic.topic import Topic
from tests.contract.backends import open_backend
from tests.unit.group.single_owner import SingleOwner, consume
from tests.unit.topic.orders import Order


@pytest.fixture(params=["memory", "memory-gaps", "embedded-none", "embedded-tiny"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened = open_backend(request.param, tmp_path / "hub")
    yield opened
    opened.close()


@pytest.fixture
def topic(backend: Backend) -> Topic[Any]:
    return Hub.from_backend(backend).create_topic("orders", partitions=3)


@pytest.fixture
def runtime(backend: Backend) -> SingleOwner:
    return SingleOwner(backend)


def push(topic: Topic[Any], count: int, keys: int = 5, first: int = 0) -> None:
    topic.push_many([(f"k{n % keys}", n) for n in range(first, first + count)])


def for_each(deliveries: Deliveries[Any], handler: Callable[[Delivery[Any]], None]) -> None:
    for delivery in deliveries:
        handler(delivery)


def left(topic: Topic[Any]) -> list[Any]:
    """The values that the ledger does not hold."""
    found = []
    for number in range(topic.view.definition.shape.partitions):
        where = Partition(topic.name, 0, number)
        progress = Progress.load(topic.view.backend.table, consumer_name("billing"), where)
        for batch in topic.batches(0, number):
            messages = topic.messages(where, batch)
            found += [m.value for m in messages if not progress.acked(m.offset)]
    return sorted(found)


def test_every_message_comes_once_in_order_per_key(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 200)
    by_key: defaultdict[str | None, list[int]] = defaultdict(list)
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            by_key[delivery.key].append(delivery.value)
    assert {key: list(range(n, 200, 5)) for n, key in enumerate(sorted(map(str, by_key)))} == by_key
    assert left(topic) == []


def test_a_delivery_is_a_message_with_all_its_fields(backend: Backend) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", Order, partitions=1)
    receipt = topic.push(Order(7), key="c7", headers={"trace": b"x"}, timestamp=1_495_000_000_123)
    expected = topic.read(0, 0, receipt.offset)
    decode = Payload(Order).decode_message
    with consume(topic, SingleOwner(backend), payload=decode, until="end") as deliveries:
        [delivery] = list(deliveries)
    assert isinstance(delivery, Message)
    for field in (
        "id", "topic", "storage", "partition", "offset", "position", "timestamp", "timestamp_ms",
        "key", "key_bytes", "headers", "data", "value", "mode", "op",
    ):  # fmt: skip
        assert getattr(delivery, field) == getattr(expected, field), field
    assert (delivery.mode, delivery.op) == (Mode.COPY, Op.INSERT)
    assert (delivery.attempt, delivery.redelivered) == (1, False)


def test_the_repr_of_a_delivery_shows_no_payload(topic: Topic[Any], runtime: SingleOwner) -> None:
    topic.push("secret", key="c7")
    with consume(topic, runtime, until="end") as deliveries:
        shown = repr(next(iter(deliveries)))
    assert "secret" not in shown
    assert "key='c7'" in shown
    assert "attempt 1" in shown


def test_a_payload_that_does_not_decode_names_its_position(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    receipt = topic.push("text", key="c7")
    decode = Payload(Order).decode_message
    with consume(topic, runtime, payload=decode, until="end") as deliveries:
        delivery = next(iter(deliveries))
        with pytest.raises(DecodeError, match=receipt.id):
            delivery.value  # noqa: B018


def test_leaving_the_block_acknowledges_the_one_in_hand(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        for delivery in deliveries:
            if delivery.value == 3:
                break
    assert 3 not in left(topic)


def test_leaving_the_block_by_an_exception_does_not(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    done: list[int] = []

    def consume_some() -> None:
        with consume(topic, runtime) as deliveries:
            for delivery in deliveries:
                if delivery.value == 3:
                    raise ZeroDivisionError
                done.append(delivery.value)

    with pytest.raises(ZeroDivisionError):
        consume_some()
    assert left(topic) == sorted(set(range(10)) - set(done))
    assert 3 in left(topic)


def test_what_was_in_hand_at_an_exception_is_marked_when_it_comes_again(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 4)
    with pytest.raises(ZeroDivisionError), consume(topic, runtime) as deliveries:
        raise ZeroDivisionError(next(iter(deliveries)))
    with consume(topic, SingleOwner(backend), until="end") as deliveries:
        assert [delivery.redelivered for delivery in deliveries] == [True, False, False, False]


def test_iterating_again_after_a_break_goes_on(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    got = []
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            got.append(delivery.value)
            break
        got += [delivery.value for delivery in deliveries]
    assert sorted(got) == list(range(10))


def test_a_loop_without_a_block_leaves_the_group_at_its_end(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    assert len(list(consume(topic, runtime, limit=10))) == 10
    assert runtime.left
    assert left(topic) == []


def test_a_loop_without_a_block_that_is_broken_off_leaves_and_gives_back_what_it_had(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    in_hand = None
    for number, delivery in enumerate(consume(topic, runtime)):
        in_hand = delivery.value
        if number == 3:
            break
    assert runtime.left
    assert in_hand in left(topic)
    assert len(left(topic)) == 7


def test_batches_without_a_block_leave_the_group_at_their_end(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    assert sum(b.num_rows for b in consume(topic, runtime, until="end").batches()) == 10
    assert runtime.left
    assert left(topic) == []


def test_two_iterations_of_one_thread_share_what_comes(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10, keys=1)
    with consume(topic, runtime, until="end") as deliveries:
        one, other = iter(deliveries), iter(deliveries)
        got = [next(each).value for _ in range(5) for each in (one, other)]
    assert got == list(range(10))
    assert left(topic) == []


def test_a_second_thread_that_iterates_is_refused(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 3, keys=1)
    with ThreadPoolExecutor(1) as pool, consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            with pytest.raises(Error, match="another thread iterates this consumer"):
                pool.submit(lambda: next(iter(deliveries))).result()
            assert delivery.value in left(topic)
        assert pool.submit(lambda: list(deliveries)).result() == []


def test_a_start_that_failed_can_be_tried_again(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 3)
    failing = [True]

    def join(session: Session) -> SingleOwner:
        if failing.pop() if failing else False:
            raise BackendUnavailable("it does not answer")
        return runtime.join(session)

    deliveries = consume(topic, runtime, join=join, until="end")
    with pytest.raises(BackendUnavailable), deliveries:
        pass
    with deliveries:
        assert len(list(deliveries)) == 3


def test_a_message_given_back_comes_again_before_others_of_its_key(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 30)
    given_back = False
    got: defaultdict[str | None, list[int]] = defaultdict(list)
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            if delivery.value == 10 and not given_back:
                given_back = True
                delivery.nack(delay="20ms")
                continue
            got[delivery.key].append(delivery.value)
            if delivery.value == 10:
                assert (delivery.attempt, delivery.redelivered) == (2, True)
    assert all(values == sorted(values) for values in got.values())
    assert sum(map(len, got.values())) == 30
    assert left(topic) == []


def test_a_message_given_back_too_often_raises_an_error_that_says_what_to_do(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 30)
    tried: list[int] = []
    others: set[int] = set()

    def refuse_k1(deliveries: Deliveries[Any]) -> None:
        for delivery in deliveries:
            if delivery.key == "k1":
                tried.append(delivery.attempt)
                delivery.nack()
            else:
                others.add(delivery.value)

    with consume(topic, runtime, until="end", attempts=3) as deliveries:
        with pytest.raises(DeliveryFailed) as caught:
            refuse_k1(deliveries)
        others |= {delivery.value for delivery in deliveries}
        assert deliveries.stats().failed == 1
    assert tried == [1, 2, 3]
    assert (caught.value.key, caught.value.attempts) == ("k1", 3)
    assert caught.value.position.startswith("orders/0.")
    assert "acknowledge it to pass over it" in str(caught.value)
    assert others == {n for n in range(30) if n % 5 != 1}
    assert left(topic)[:1] == [1]


def test_a_failed_message_can_be_passed_over(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 30)
    got: list[int] = []
    with consume(topic, runtime, until="end", attempts=1) as deliveries:
        while True:
            try:
                for delivery in deliveries:
                    got.append(delivery.value)
                    if delivery.value == 11:
                        delivery.nack()
                break
            except DeliveryFailed:
                assert delivery.value == 11
                delivery.ack()
    assert sorted(got) == list(range(30))
    assert left(topic) == []


def test_manual_acknowledgements_from_many_threads_keep_the_order_per_key(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 400, keys=20)
    mutex = threading.Lock()
    got: defaultdict[str | None, list[int]] = defaultdict(list)

    def work(delivery: Delivery[Any]) -> None:
        with mutex:
            got[delivery.key].append(delivery.value)
        if delivery.value % 50 == 7 and delivery.attempt == 1:
            got[delivery.key].pop()
            delivery.nack(delay="1ms")
        else:
            delivery.ack()

    manual = consume(topic, runtime, until="end", ack="manual")
    with ThreadPoolExecutor(8) as pool, manual as deliveries:
        for delivery in deliveries:
            pool.submit(work, delivery)
    assert sum(map(len, got.values())) == 400
    assert all(values == sorted(values) for values in got.values())
    assert left(topic) == []


def test_what_is_not_acknowledged_by_hand_comes_again(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10, keys=10)
    with consume(topic, runtime, ack="manual", idle_timeout="20ms") as deliveries:
        for delivery in deliveries:
            if delivery.value % 2:
                delivery.ack()
    assert left(topic) == [0, 2, 4, 6, 8]


def test_until_the_end_means_what_was_there_at_the_start(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    got = []
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            got.append(delivery.value)
            push(topic, 1, first=100 + delivery.value)
    assert sorted(got) == list(range(10))
    assert len(left(topic)) == 10


def test_until_the_end_of_an_empty_topic_is_at_once(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime, until="end") as deliveries:
        assert list(deliveries) == []


def test_until_the_end_waits_for_what_others_have_in_hand(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=2)
    push(topic, 20)
    other = SingleOwner(backend)
    mine = consume(topic, runtime, units=["orders/0.0"], until="end")
    theirs = consume(topic, other, units=["orders/0.1"], ack="manual", idle_timeout="20ms")
    with theirs, ThreadPoolExecutor(1) as pool:
        held = list(theirs)
        ending = pool.submit(lambda: len(list(mine)))
        with pytest.raises(TimeoutError):
            ending.result(timeout=0.3)
        while held:
            for delivery in held:
                delivery.ack()
            held = list(theirs)
        assert other.session is not None
        other.session.save()
        assert 0 < ending.result(timeout=10) < 20
    mine.__exit__(None, None, None)
    assert left(topic) == []


def test_a_limit_ends_the_loop_with_the_last_one_acknowledged(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime, limit=4) as deliveries:
        got = [delivery.value for delivery in deliveries]
        assert len(got) == 4
        assert list(deliveries) == []
        assert deliveries.stats().in_hand == 0
    assert left(topic) == sorted(set(range(10)) - set(got))


def test_a_loop_ends_when_nothing_came_for_a_while(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    with consume(topic, runtime, idle_timeout="20ms") as deliveries:
        assert len(list(deliveries)) == 10


def test_batches_have_the_public_columns_and_name_their_partition(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 100)
    rows = 0
    with consume(topic, runtime, until="end", batch_size=7) as deliveries:
        for batch in deliveries.batches():
            assert batch.schema.names == [
                "offset", "timestamp", "mode", "op", "key", "headers", "value",
            ]  # fmt: skip
            assert 1 <= batch.num_rows <= 7
            where = Partition.parse((batch.schema.metadata or {})[b"partition"].decode())
            first = batch["offset"][0].as_py()
            expected = topic.read(where.storage, where.number, first)
            assert batch["value"][0].as_py() == expected.data
            rows += batch.num_rows
    assert rows == 100
    assert left(topic) == []


def test_batches_say_below_which_offset_rows_come_again(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 10)
    with pytest.raises(ZeroDivisionError), consume(topic, runtime, batch_size=4) as deliveries:
        raise ZeroDivisionError(next(deliveries.batches()))
    said = {}
    with consume(topic, SingleOwner(backend), until="end", batch_size=3) as deliveries:
        for batch in deliveries.batches():
            below = (batch.schema.metadata or {}).get(b"redelivered_below", b"0")
            for offset, value in zip(batch["offset"], batch["value"], strict=True):
                said[int(value.as_py())] = offset.as_py() < int(below)
            assert (int(below) > batch["offset"][0].as_py()) == (below != b"0")
    assert said == {number: number < 4 for number in range(10)}


def test_a_batch_of_one_that_was_given_back_says_that_it_comes_again(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 1)
    with consume(topic, runtime) as deliveries:
        delivery = next(iter(deliveries))
        delivery.nack()
        metadata = next(deliveries.batches()).schema.metadata or {}
        assert metadata[b"redelivered_below"] == str(delivery.offset + 1).encode()


def test_a_batch_is_acknowledged_when_the_next_is_asked_for(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 10)
    with pytest.raises(ZeroDivisionError), consume(topic, runtime, batch_size=1) as deliveries:
        raise ZeroDivisionError(
            [batch for _, batch in zip("12", deliveries.batches(), strict=False)]
        )
    assert left(topic) == list(range(1, 10))


def test_batches_stop_at_the_limit(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 100)
    with consume(topic, runtime, limit=33) as deliveries:
        assert sum(batch.num_rows for batch in deliveries.batches()) == 33


def test_batches_with_manual_acknowledgement_are_refused(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    refused = pytest.raises(InvalidValue, match="batches are acknowledged as wholes")
    with consume(topic, runtime, ack="manual") as deliveries, refused:
        next(deliveries.batches())


def test_a_handler_is_called_until_shutdown(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    got: list[int] = []
    deliveries = consume(topic, runtime)

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            deliveries.shutdown()

    deliveries.run(handler)
    assert sorted(got) == list(range(10))
    assert runtime.left
    assert left(topic) == []


def test_a_handler_that_raises_gets_the_message_again(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4 and delivery.attempt == 1:
            raise ValueError("not yet")
        got.append(delivery.value)

    consume(topic, runtime, until="end").run(handler)
    assert sorted(got) == list(range(10))


def test_a_handler_that_always_raises_ends_the_run_with_its_reason(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4:
            raise ValueError("never")

    with pytest.raises(DeliveryFailed) as caught:
        consume(topic, runtime, until="end", attempts=2).run(handler)
    assert isinstance(caught.value.__cause__, ValueError)
    assert 4 in left(topic)


def test_a_consumer_in_a_thread_of_its_own_ends_by_shutdown(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    done = threading.Event()
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            done.set()

    deliveries = consume(topic, runtime).start(handler)
    assert done.wait(10)
    deliveries.shutdown()
    assert runtime.left
    assert left(topic) == []


def test_what_ends_a_consumer_in_a_thread_is_raised_by_shutdown(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    failing = threading.Event()

    def handler(delivery: Delivery[Any]) -> None:
        failing.set()
        raise ValueError("never")

    deliveries = consume(topic, runtime, attempts=1).start(handler)
    assert failing.wait(10)
    deliveries._thread.join(10)  # type: ignore[union-attr]
    with pytest.raises(DeliveryFailed):
        deliveries.shutdown()


def test_async_iteration_gives_the_same_and_leaves_the_event_loop_free(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 100)
    ticks = 0

    async def consume_all() -> list[int]:
        got: list[int] = []
        async with consume(topic, runtime, limit=101) as deliveries:
            async for delivery in deliveries:
                got.append(delivery.value)
                if len(got) == 100:
                    asyncio.get_running_loop().call_later(0.05, push, topic, 1, 5, 100)
                    asyncio.get_running_loop().call_later(0.1, runtime.tide)
        return got

    async def both() -> list[int]:
        nonlocal ticks
        work = asyncio.create_task(consume_all())
        while not work.done():
            ticks += 1
            await asyncio.sleep(0.005)
        return await work

    assert sorted(asyncio.run(both())) == list(range(101))
    assert ticks >= 5
    assert left(topic) == []


def test_a_cancelled_async_loop_ends_and_loses_nothing(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    got: list[int] = []

    async def consume_until_cancelled() -> None:
        async with consume(topic, runtime) as deliveries:
            async for delivery in deliveries:
                got.append(delivery.value)

    async def cancelling() -> None:
        work = asyncio.create_task(consume_until_cancelled())
        while len(got) < 10:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelling())
    assert runtime.left
    assert left(topic) == []


def test_stats_tell_what_a_consumer_has_and_did(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10, keys=10)
    with consume(topic, runtime, until="end", ack="manual", id="worker-1") as deliveries:
        held = [delivery for _, delivery in zip(range(3), deliveries, strict=False)]
        held[0].ack()
        held[1].nack()
        stats = deliveries.stats()
        assert deliveries.id == "worker-1"
        assert deliveries.is_acking
    assert len(stats.partitions) == 3
    assert (stats.delivered, stats.acknowledged, stats.nacked, stats.in_hand) == (3, 1, 1, 1)


def test_a_consumer_that_left_says_so(topic: Topic[Any], runtime: SingleOwner) -> None:
    with consume(topic, runtime) as deliveries:
        pass
    with pytest.raises(Error, match="has left its group"):
        next(iter(deliveries))


@pytest.mark.parametrize(
    "options",
    [
        {"ack": "never"},
        {"until": "tomorrow"},
        {"limit": 0},
        {"attempts": 0},
        {"batch_size": 0},
        {"idle_timeout": 3},
        {"handler_timeout": "soon"},
    ],
)
def test_bad_options_are_refused_with_what_is_valid(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        Asked.of(HubSettings(), **options)


def test_a_bad_id_is_refused() -> None:
    with pytest.raises(InvalidName):
        Asked.of(HubSettings(), id="a/b")


def test_a_handler_timeout_gives_the_time_to_let_go_of_a_unit(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime, handler_timeout="2m"):
        pass
    assert runtime.told[0].revoke_timeout_s == 125.0  # type: ignore[union-attr]


def test_progress_covers_gaps_so_that_marks_reach_the_ends(
    topic: Topic[Any], runtime: SingleOwner, backend: Backend
) -> None:
    push(topic, 30)
    with consume(topic, runtime, until="end") as deliveries:
        for _ in deliveries:
            pass
    for number, end in enumerate(topic.storage_topics[0].ends):
        where = Partition("orders", 0, number)
        assert Progress.load(backend.table, consumer_name("billing"), where).mark == end


def test_leaving_a_block_ends_a_consumer_that_was_started_in_it(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    got: list[int] = []
    done = threading.Event()

    def handler(delivery: Delivery[Any]) -> None:
        got.append(delivery.value)
        if len(got) == 10:
            done.set()

    with consume(topic, runtime) as deliveries:
        deliveries.start(handler)
        assert done.wait(10)
    assert runtime.left
    assert left(topic) == []


def test_a_failed_key_ends_no_loop_before_the_others_are_done(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    for number in range(40):
        topic.push(number, key=f"k{number % 20}")
    settings = HubSettings.of(prefetch_bytes=500)
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.key == "k0":
            delivery.nack()
        else:
            got.append(delivery.value)

    with consume(topic, runtime, settings=settings, attempts=1, until="end") as deliveries:
        with pytest.raises(DeliveryFailed):
            for_each(deliveries, handler)
        for_each(deliveries, handler)
    assert got == [n for n in range(40) if n % 20]
    assert left(topic) == [0, 20]


def test_a_partition_that_can_hold_back_no_more_says_so(
    backend: Backend, runtime: SingleOwner, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 50, keys=1)
    settings = HubSettings.of(redelivery_records_max=10)
    with consume(topic, runtime, settings=settings, attempts=1, until="end") as deliveries:
        with pytest.raises(DeliveryFailed):
            for_each(deliveries, Delivery.nack)
        assert list(deliveries) == []
        assert deliveries.stats().held_back == 10
    assert "orders/0.0 stands still" in caplog.text


def test_a_consumer_of_many_partitions_leaves_with_all_of_them_durable(backend: Backend) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=40)
    push(topic, 400, keys=400)
    with consume(topic, SingleOwner(backend), limit=400) as deliveries:
        assert len(list(deliveries)) == 400
    assert left(topic) == []
