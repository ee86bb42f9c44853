"""Apps of one subscription, for tests of runs."""

from __future__ import annotations

from typing import Any

from tailrace import App, Retry
from tailrace.testing import AppRun, DeliveryOutcome

RETRY = Retry(attempts=3, first="10m", max="10m")


class Down(Exception):
    """Raised by handlers."""


def app_of(handler: Any, **options: Any) -> App:
    """Return an app whose subscription `mailer` of `orders` retries after up to 10 minutes."""
    app = App()
    app.subscription("mailer", topic="orders", **({"retry": RETRY} | options))(handler)
    return app


def calls(shop: AppRun) -> list[tuple[Any, int, str]]:
    """Return the value, the attempt and the outcome of each call."""
    found = shop.deliveries("mailer")
    return [(each.value, each.attempt, each.outcome.value) for each in found]


def succeeded(shop: AppRun) -> list[Any]:
    """Return the values of the calls that succeeded, in order."""
    found = shop.deliveries("mailer")
    return [each.value for each in found if each.outcome is DeliveryOutcome.SUCCEEDED]
