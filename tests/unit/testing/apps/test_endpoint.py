"""Simulated faults: what the endpoint of a handler does, and workers that end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import App, InvalidValue, KeyStatus, RetryLater
from tailrace.testing import DeliveryOutcome, run
from tests.support.app_runs import RETRY, app_of, calls, succeeded


class Mailbox:
    """A handler that remembers its mails."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    def __call__(self, order: Any) -> None:
        self.mails.append(order.value)


def test_calls_fail_a_number_of_times_and_then_reach_the_handler() -> None:
    box = Mailbox()
    with run(app_of(box)) as shop:
        shop.endpoint("mailer").fails(times=2)
        shop.push("orders", 1, key="c7")
        shop.until_idle()
        assert calls(shop) == [(1, 1, "failed"), (1, 2, "failed"), (1, 3, "succeeded")]
        assert [each.simulated for each in shop.deliveries("mailer")] == [True, True, False]
        assert shop.deliveries("mailer")[0].error == "SimulatedFailure: simulated by the test"
    assert box.mails == [1]


def test_a_fault_may_have_a_key_and_an_error_and_others_are_not_struck() -> None:
    with run(app_of(Mailbox())) as shop:
        shop.endpoint("mailer").fails(error=RetryLater("1h", "closed"), key="c8")
        began = shop.now
        for number in (7, 8):
            shop.push("orders", number, key=f"c{number}")
        shop.until_idle()
        assert succeeded(shop) == [7, 8]
        assert (shop.now - began).total_seconds() == 3600
        [failed] = [each for each in shop.deliveries("mailer") if each.error]
        assert (failed.key, failed.error) == ("c8", "RetryLater: closed")


def test_faults_strike_in_the_order_in_which_they_were_added() -> None:
    with run(app_of(Mailbox())) as shop:
        shop.endpoint("mailer").fails().rejects("unknown address")
        shop.push("orders", 1, key="c7")
        shop.until_idle()
        assert calls(shop) == [(1, 1, "failed"), (1, 2, "rejected")]
        assert shop.deliveries("mailer")[1].error == "Reject: unknown address"


def test_a_fault_without_end_lasts_until_the_endpoint_recovers() -> None:
    with run(app_of(Mailbox())) as shop:
        shop.endpoint("mailer").fails(times=None)
        shop.push("orders", 1, key="c7")
        shop.advance("11m")
        assert len(calls(shop)) >= 2
        shop.endpoint("mailer").recovers()
        shop.until_idle()
        assert succeeded(shop) == [1]


def test_a_payload_that_kills_its_worker_becomes_a_dead_letter_and_no_other_does() -> None:
    with run(app_of(Mailbox())) as shop:
        shop.endpoint("mailer").kills_worker(times=None, key="poison")
        for key in ("c7", "poison", "c8", "c9"):
            shop.push("orders", key, key=key)
        shop.until_idle()
        [dead] = shop.dead_letters("mailer")
        assert (dead.value, dead.attempts) == ("poison", 3)
        assert dead.error == "the worker ended during the call"
        assert {*succeeded(shop)} == {"c7", "c8", "c9"}


def test_a_worker_that_dies_after_the_call_has_the_handler_called_again() -> None:
    box = Mailbox()
    with run(app_of(box)) as shop:
        shop.endpoint("mailer").kills_worker_after_call()
        shop.push("orders", 1, key="c7")
        shop.until_idle()
        assert [outcome for _, _, outcome in calls(shop)] == ["worker died", "succeeded"]
    assert box.mails == [1, 1]


def test_a_killed_worker_forgets_the_successes_of_all_subscriptions_that_are_not_stored() -> None:
    box, copies = Mailbox(), Mailbox()
    app = app_of(box)
    app.subscription("archive", topic="orders")(copies)
    with run(app) as shop:
        for number in range(3):
            shop.push("orders", number, key="c7")
        while len(box.mails) < 2:
            shop.step()
        shop.kill_worker()
        shop.until_idle()
        assert (box.mails, copies.mails) == ([0, 1, 0, 1, 2], [0, 0, 1, 2])
        shop.kill_worker()
        shop.until_idle()
        assert (len(box.mails), len(copies.mails)) == (5, 4)


def test_attempts_count_over_restarts_and_kills_between_them() -> None:
    for end in ("restart_worker", "kill_worker"):
        with run(app_of(Mailbox())) as shop:
            shop.endpoint("mailer").fails(times=None)
            shop.push("orders", 1, key="c7")
            shop.push("orders", 2, key="c7")
            while shop.step() is not None:
                shop.retrying("mailer")  # stored
                getattr(shop, end)()
            assert calls(shop) == [(1, 1, "failed"), (1, 2, "failed"), (1, 3, "failed")]
            assert [each.value for each in shop.dead_letters("mailer")] == [1, 2]


def test_a_restart_in_good_order_has_nothing_delivered_again() -> None:
    box = Mailbox()
    with run(app_of(box)) as shop:
        for number in range(5):
            shop.push("orders", number, key="c7")
        while shop.step() is not None:
            shop.restart_worker()
        assert box.mails == [0, 1, 2, 3, 4]


def test_the_hub_shows_the_worker_of_the_run_and_explains_its_keys() -> None:
    with run(app_of(Mailbox())) as shop:
        shop.endpoint("mailer").fails(times=None)
        shop.push("orders", 1, key="c7")
        shop.step()
        shop.kill_worker()
        shop.advance("1s")
        mailer = shop.hub.subscription("mailer")
        [worker] = mailer.describe().workers
        assert worker.shards == (0, 1, 2, 3)
        assert mailer.explain("c7").state is KeyStatus.RETRYING
        shop.restart_worker()
        assert len(mailer.describe().workers) == 1


ACTIONS = ("push", "push", "push", "step", "advance", "restart", "kill")
FAULTS = ("fails", "rejects", "kills_worker", "kills_worker_after_call")


@given(
    st.integers(0, 1000),
    st.sampled_from(["block", "continue"]),
    st.lists(st.tuples(st.sampled_from(ACTIONS + FAULTS), st.integers(0, 3)), max_size=40),
)
@settings(max_examples=60)
def test_whatever_happens_each_key_is_in_order_and_nothing_is_lost(
    seed: int, policy: str, actions: list[tuple[str, int]]
) -> None:
    pushed: dict[str, list[int]] = {f"c{number}": [] for number in range(4)}
    with run(app_of(Mailbox(), on_dead_letter=policy), seed=seed) as shop:
        for at, (action, number) in enumerate(actions):
            key = f"c{number}"
            match action:
                case "push":
                    pushed[key].append(at)
                    shop.push("orders", at, key=key)
                case "step":
                    shop.step()
                case "advance":
                    shop.advance("3m")
                case "restart":
                    shop.restart_worker()
                case "kill":
                    shop.kill_worker()
                case fault:
                    getattr(shop.endpoint("mailer"), fault)(key=key)
        shop.until_idle()
        dead = shop.dead_letters("mailer")
        assert (shop.pending("mailer"), shop.retrying("mailer")) == (0, [])
        done: dict[str | None, list[int]] = {}
        for each in shop.deliveries("mailer"):
            values = done.setdefault(each.key, [])
            if each.outcome is DeliveryOutcome.SUCCEEDED and each.value not in values:
                values.append(each.value)
        for key, values in pushed.items():
            assert done.get(key, []) == sorted(done.get(key, []))
            lost = {*values} - {*done.get(key, [])} - {each.value for each in dead}
            assert lost == set()


def test_faults_are_checked() -> None:
    with run(app_of(Mailbox())) as shop:
        endpoint = shop.endpoint("mailer")
        with pytest.raises(InvalidValue, match="times"):
            endpoint.fails(times=0)
        with pytest.raises(InvalidValue, match="error"):
            endpoint.fails(error=TimeoutError)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="did you mean 'mailer'"):
            shop.endpoint("mial")


def test_a_subscription_that_kills_the_process_makes_no_dead_letter_of_another_one() -> None:
    app = App()
    for name in ("healthy", "crashing"):
        app.subscription(name, topic="orders", retry=RETRY)(lambda order: None)
    with run(app) as shop:
        shop.endpoint("crashing").kills_worker(times=None)
        for number in range(8):
            shop.push("orders", number, key=f"c{number}")
        shop.until_idle()
        assert shop.dead_letters("healthy") == []
        assert len(shop.dead_letters("crashing")) == 8
        assert {each.value for each in shop.deliveries("healthy")} == set(range(8))
