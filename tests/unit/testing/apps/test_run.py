"""Runs of apps: calls, order, time and errors."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tailrace import (
    App,
    Delivery,
    Error,
    InvalidValue,
    Message,
    Reject,
    Retry,
    RetryLater,
    TopicTypeMismatch,
    UnknownSubscription,
    UnknownTopic,
)
from tailrace.testing import AppRun, DeliveryOutcome, NotIdle, run
from tests.support.app_runs import Down, app_of

SUCCEEDED, FAILED, REJECTED = (
    DeliveryOutcome.SUCCEEDED,
    DeliveryOutcome.FAILED,
    DeliveryOutcome.REJECTED,
)


class Order(msgspec.Struct):
    number: int


def outcomes(shop: AppRun) -> list[DeliveryOutcome]:
    return [each.outcome for each in shop.deliveries("mailer")]


def test_a_handler_gets_what_was_pushed_after_the_next_step() -> None:
    seen: list[Order] = []

    def mail(order: Delivery[Order]) -> None:
        seen.append(order.value)

    with run(app_of(mail)) as shop:
        receipt = shop.push("orders", Order(1), key="c7", headers={"country": "IN"})
        assert seen == []
        shop.until_idle()
        [delivery] = shop.deliveries("mailer")
    assert seen == [Order(1)]
    assert (delivery.id, delivery.key, delivery.value) == (receipt.id, "c7", Order(1))
    assert delivery.headers == {"country": b"IN"}
    assert (delivery.attempt, delivery.outcome, delivery.error) == (1, SUCCEEDED, "")


def test_a_failed_message_holds_back_its_key_and_is_retried_in_virtual_time() -> None:
    def mail(order: Delivery[int]) -> None:
        if order.value == 1 and order.attempt < 3:
            raise Down("no answer")

    with run(app_of(mail)) as shop:
        for key, value in (("c7", 1), ("c7", 2), ("c8", 3)):
            shop.push("orders", value, key=key)
        began = shop.now
        shop.until_idle()
        found = shop.deliveries("mailer")
        assert [each.value for each in found if each.key == "c7"] == [1, 1, 1, 2]
        assert [each.at for each in found if each.key == "c8"] == [began]
        errors = [each.error for each in found if each.key == "c7"]
        assert errors == ["Down: no answer", "Down: no answer", "", ""]
        assert timedelta(minutes=10) <= shop.now - began <= timedelta(minutes=20)


def test_the_same_seed_gives_the_same_run_and_another_one_other_delays() -> None:
    def mail(order: Delivery[int]) -> None:
        raise Down

    def deliveries(seed: int) -> list[Any]:
        with run(app_of(mail), seed=seed) as shop:
            for number in range(10):
                shop.push("orders", number, key=None if number % 2 else f"c{number}")
            shop.until_idle()
            return [(each.id, each.attempt, each.at) for each in shop.deliveries("mailer")]

    assert deliveries(1) == deliveries(1)
    assert deliveries(1) != deliveries(2)


def test_a_handler_may_reject_or_say_when_to_retry() -> None:
    def mail(order: Delivery[int]) -> None:
        if order.value < 0:
            raise Reject("negative")
        if order.attempt == 1:
            raise RetryLater("45s")

    with run(app_of(mail)) as shop:
        began = shop.now
        shop.push("orders", -1)
        shop.until_idle()
        shop.push("orders", 1)
        shop.until_idle()
        assert outcomes(shop) == [REJECTED, FAILED, SUCCEEDED]
        assert shop.deliveries("mailer")[0].error == "Reject: negative"
        assert shop.now - began == timedelta(seconds=45)


def test_a_coroutine_function_is_awaited_in_one_loop_and_each_call_has_its_own_context() -> None:
    loops: set[asyncio.AbstractEventLoop] = set()
    last: contextvars.ContextVar[int] = contextvars.ContextVar("last", default=0)

    async def mail(order: Delivery[int]) -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        assert last.get() == 0
        last.set(order.value)
        if order.attempt == 1:
            raise Down

    with run(app_of(mail)) as shop:
        shop.push("orders", 1, key="c7")
        shop.push("orders", 2, key="c7")
        shop.until_idle()
        assert outcomes(shop) == [FAILED, SUCCEEDED, FAILED, SUCCEEDED]
    assert len(loops) == 1
    assert loops.pop().is_closed()


def test_a_function_may_return_a_coroutine() -> None:
    async def send() -> None:
        raise Down

    with run(app_of(lambda order: send())) as shop:
        shop.push("orders", 1)
        shop.step()
        assert outcomes(shop) == [FAILED]


def test_a_coroutine_that_takes_longer_than_its_timeout_has_failed() -> None:
    async def mail(order: Delivery[int]) -> None:
        await asyncio.Event().wait()

    with run(app_of(mail, timeout="10ms")) as shop:
        shop.push("orders", 1)
        shop.step()
        assert [each.error for each in shop.deliveries("mailer")] == ["timed out after 0.01 s"]


def test_a_coroutine_in_a_test_that_is_a_coroutine_is_an_error_of_the_test() -> None:
    async def mail(order: Delivery[int]) -> None:
        """Succeed."""

    async def test() -> None:
        with run(app_of(mail)) as shop:
            shop.push("orders", 1)
            with pytest.raises(Error, match="write the test with `def`"):
                shop.until_idle()
            assert shop.deliveries("mailer") == []

    asyncio.run(test())


def test_a_message_that_cannot_be_decoded_is_rejected() -> None:
    def mail(order: Delivery[Order]) -> None:
        assert order.value

    with run(app_of(mail)) as shop:
        shop.push("orders", {"number": "one"})
        shop.until_idle()
        [delivery] = shop.deliveries("mailer")
        assert (delivery.outcome, delivery.value) == (REJECTED, None)
        assert "number" in delivery.error


def test_filters_leave_messages_out() -> None:
    def large(order: Message[Any]) -> bool:
        return bool(order.value > 10)

    app = app_of(lambda order: None, filter=large)
    app.subscription("indian", topic="orders", filter="header.country == 'IN'")(lambda order: None)
    with run(app) as shop:
        shop.push("orders", 11, headers={"country": "FR"})
        shop.push("orders", 9, headers={"country": "IN"})
        shop.until_idle()
        assert [each.value for each in shop.deliveries("mailer")] == [11]
        assert [each.value for each in shop.deliveries("indian")] == [9]


def test_handlers_may_push_to_the_topics_of_others() -> None:
    app = App()
    app.topic("mails", partitions=1)

    @app.subscription("billing", topic="orders")
    def charge(order: Delivery[int]) -> None:
        shop.push("mails", order.value * 10, key=order.key)

    @app.subscription("mailer", topic="mails")
    def mail(text: Delivery[int]) -> None:
        """Succeed."""

    with run(app) as shop:
        shop.push("orders", 1, key="c7")
        shop.until_idle()
        assert [each.value for each in shop.deliveries("mailer")] == [10]


def test_a_topic_that_the_app_declares_has_its_type_and_partitions() -> None:
    app = app_of(lambda order: None)
    app.topic("orders", Order, partitions=2)
    with run(app) as shop:
        assert shop.hub.topic("orders").storage_topics[0].partitions == 2
        with pytest.raises(Error, match="Order"):
            shop.push("orders", {"other": 1})


def test_a_topic_may_be_scaled_in_a_run() -> None:
    with run(app_of(lambda order: None)) as shop:
        for number in range(8):
            shop.push("orders", number, key=f"c{number}")
        shop.step()
        shop.hub.topic("orders").scale(12)
        for number in range(8):
            shop.push("orders", number + 8, key=f"c{number}")
        shop.until_idle()
        values: dict[Any, list[int]] = {}
        for each in shop.deliveries("mailer"):
            values.setdefault(each.key, []).append(each.value)
        assert values == {f"c{number}": [number, number + 8] for number in range(8)}


def test_a_paused_subscription_is_not_called_until_it_is_resumed() -> None:
    with run(app_of(lambda order: None)) as shop:
        shop.hub.subscription("mailer").pause("the mail server is moved")
        shop.push("orders", 1)
        shop.until_idle()
        assert shop.deliveries("mailer") == []
        shop.hub.subscription("mailer").resume()
        shop.until_idle()
        assert outcomes(shop) == [SUCCEEDED]


def fails(order: Delivery[Any]) -> None:
    raise Down("no answer")


def test_advance_makes_the_calls_that_are_due_meanwhile_at_their_times() -> None:
    with run(app_of(fails)) as shop:
        began = shop.now
        shop.push("orders", 1)
        shop.advance("4m")
        assert (shop.now - began, len(outcomes(shop))) == (timedelta(minutes=4), 1)
        shop.advance(timedelta(minutes=6))
        assert (shop.now - began, len(outcomes(shop))) == (timedelta(minutes=10), 2)
        assert shop.deliveries("mailer")[1].at < shop.now


def test_step_makes_one_call() -> None:
    with run(app_of(fails)) as shop:
        shop.push("orders", 1)
        attempts = []
        while (delivery := shop.step()) is not None:
            attempts.append(delivery.attempt)
        assert attempts == [1, 2, 3]


def test_a_message_that_is_retried_without_end_is_reported_with_its_error() -> None:
    with run(app_of(fails, retry=Retry(first="1s"))) as shop:
        shop.push("orders", 1, key="c7")
        with pytest.raises(NotIdle) as found:
            shop.until_idle(calls_max=20)
        assert isinstance(found.value.__cause__, Down)
        assert str(found.value).startswith("not idle after 21 calls · mailer: orders/0.")
        assert "(key 'c7') was called 21 times, last failed: Down: no answer" in str(found.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_an_interrupt_ends_the_test_and_the_message_is_called_again(
    error: type[BaseException],
) -> None:
    errors: list[BaseException] = [error("enough")]

    def mail(order: Delivery[int]) -> None:
        if errors:
            raise errors.pop()

    with run(app_of(mail)) as shop:
        shop.push("orders", 1)
        with pytest.raises(error):
            shop.until_idle()
        shop.until_idle()
        assert outcomes(shop) == [SUCCEEDED]


def test_a_handler_must_not_make_steps() -> None:
    shops: list[AppRun] = []
    with run(app_of(lambda order: shops[0].step())) as shop:
        shops.append(shop)
        shop.push("orders", 1)
        shop.step()
        assert "make the steps in the test" in shop.deliveries("mailer")[0].error


def test_a_subscription_that_is_deleted_ends_the_run_as_it_ends_a_worker() -> None:
    with run(app_of(lambda order: None)) as shop:
        shop.push("orders", 1)
        shop.hub.subscription("mailer").delete()
        with pytest.raises(UnknownSubscription):
            shop.until_idle()


def test_mistakes_are_reported_as_in_production() -> None:
    with pytest.raises(InvalidValue, match="the app declares no queue and no subscription"):
        run(App())
    with pytest.raises(InvalidValue, match=r"a tailrace\.App"):
        run("shop:app")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="concurrency"):
        app_of(lambda order: None, concurrency=1_000_000)

    def mail(order: Delivery[Order]) -> None:
        """Succeed."""

    app = app_of(mail)
    app.topic("orders", int)
    with pytest.raises(TopicTypeMismatch):
        run(app)


def test_misspelled_names_are_reported_with_the_valid_ones() -> None:
    with run(app_of(lambda order: None)) as shop:
        with pytest.raises(InvalidValue, match="did you mean 'mailer'"):
            shop.deliveries("mialer")
        with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
            shop.push("order", 1)
        with pytest.raises(InvalidValue, match="calls_max"):
            shop.until_idle(calls_max=0)
        with pytest.raises(InvalidValue, match="duration"):
            shop.advance("soon")
