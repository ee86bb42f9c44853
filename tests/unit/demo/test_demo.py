"""The parts of the demo: loads, control, comparison, progress bar and table."""

from __future__ import annotations

import io
from collections import defaultdict

import pytest

from tailrace.demo.control import READ_AT_A_TURN, PushedOrder, customers_in_order
from tailrace.demo.report import Row, table
from tailrace.demo.sales import SHOPS, Sale, Sales
from tailrace.demo.sinks import once
from tailrace.demo.stage import StageProgress
from tailrace.demo.workload import PRODUCERS, Workload
from tailrace.errors import InvalidValue
from tailrace.terminal.progress import ProgressDisplay
from tailrace.topic.router import hash_key


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("orders", [1_000, 4_003])
def test_each_customer_orders_at_one_producer_and_counts_from_one(orders: int) -> None:
    workload = Workload(orders)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    producers: defaultdict[str, set[int]] = defaultdict(set)
    for producer in range(PRODUCERS):
        for order in workload.orders_of(producer):
            numbers[order.customer].append(order.number)
            producers[order.customer].add(producer)
    assert len(numbers) == workload.customers
    assert all(len(found) == 1 for found in producers.values())
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())
    assert sum(map(len, numbers.values())) == orders


def test_a_producer_that_starts_again_has_the_same_orders() -> None:
    workload = Workload(2_000)
    assert list(workload.orders_of(1)) == list(workload.orders_of(1))


def test_the_whole_demo_has_two_thousand_customers() -> None:
    assert Workload(400_000).customers == 2_000


def test_too_small_a_load_is_refused() -> None:
    with pytest.raises(InvalidValue, match="1,000 or more"):
        Workload(999)


def test_each_shop_numbers_its_sales_from_one_and_one_sale_is_invalid() -> None:
    sales = list(Sales(1_003))
    assert len(sales) == 1_003
    for shop in SHOPS:
        numbers = [sale.number for sale in sales if sale.shop == shop]
        assert numbers == list(range(1, len(numbers) + 1))
    assert sum(sale.total < 0 for sale in sales) == 1
    assert sales == list(Sales(1_003))


def test_too_few_sales_are_refused() -> None:
    with pytest.raises(InvalidValue, match="1,000 or more"):
        Sales(999)


SOLD = [Sale("rome", number, "c1", 1.0) for number in range(1, 11)]


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (SOLD, 10),
        (SOLD[::-1], 10),
        (SOLD[1:], 9),
        ([*SOLD, SOLD[0]], 9),
        ([*SOLD[1:], SOLD[1]], 8),
        ([*SOLD, Sale("rome", 99, "c1", 1.0)], 9),
        ([*SOLD[1:], Sale("rome", 1, "c1", 2.0)], 8),
    ],
    ids=["all", "another order", "one lost", "one twice", "both", "one too many", "one changed"],
)
def test_only_sales_stored_exactly_once_and_unchanged_count(found: list[Sale], count: int) -> None:
    assert once(SOLD, found) == count


def pushes_of(customers: list[str], counts: list[int], each: int) -> list[PushedOrder]:
    """Return `each` orders of every customer for every number of partitions."""
    return [
        PushedOrder(time_ms, count, customer, time_ms + 1)
        for time_ms in range(each * len(counts))
        for count in [counts[time_ms // each]]
        for customer in customers
    ]


def test_the_control_keeps_order_while_the_partitions_stay_as_they_are() -> None:
    customers = [f"c{number}" for number in range(20)]
    assert customers_in_order(pushes_of(customers, [4, 4], each=READ_AT_A_TURN)) == 20


def test_the_control_loses_the_order_of_customers_that_change_their_partition() -> None:
    customers = [f"c{number}" for number in range(20)]
    stay = [c for c in customers if hash_key(c.encode()) % 4 == hash_key(c.encode()) % 12]
    assert 0 < len(stay) < len(customers)
    pushes = pushes_of(customers, [4, 12], each=READ_AT_A_TURN)
    assert customers_in_order(pushes) == len(stay)


def test_without_a_terminal_a_stage_takes_ten_plain_lines() -> None:
    stream = io.StringIO()
    progress = StageProgress(ProgressDisplay(stream), "pushing", 1_000, "orders")
    for done in range(1_001):
        progress.show(done)
    progress.end()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("pushing   100 %      1,000 orders")


def test_on_a_terminal_a_stage_is_one_bar_below_its_events() -> None:
    stream = Terminal()
    progress = StageProgress(ProgressDisplay(stream), "pushing", 1_000, "orders")
    progress.show(500)
    progress.say("  scaled")
    progress.end()
    bar, event, end, rest = stream.getvalue().split("\n")
    assert bar.count("█") == 15
    assert event == "\x1b[1A\x1b[J  scaled"
    assert end.count("█") == 30
    assert rest == ""


def test_the_table_names_the_broken_promises() -> None:
    rows = [Row("orders stored once", 1_000, 999, 400), Row("orders found", 5, 5, None)]
    assert table(rows).splitlines() == [
        "guarantee           expected  seen  without Tailrace",
        "orders stored once     1,000   999               400  BROKEN",
        "orders found               5     5          the same  held",
    ]
