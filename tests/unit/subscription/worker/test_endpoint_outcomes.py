"""Each answer of an endpoint, and each way to answer nothing, has an outcome and frees its slot."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tailrace import Retry
from tests.support.http_endpoint import (
    OK,
    Answer,
    HttpEndpoint,
    answers,
    closes,
    endless,
    half_a_body,
    huge,
    no_http,
    resets,
    silent,
)
from tests.support.waiting import until
from tests.support.workers import Office

SOON = Retry(attempts=4, first="10ms", max="20ms")


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    with HttpEndpoint() as server:
        yield server


def office_for(endpoint: HttpEndpoint, **options: Any) -> Office:
    options.setdefault("retry", SOON)
    return Office(endpoint=endpoint.url, allow_private=True, **options)


def errors_of(office: Office, count: int = 1) -> list[str]:
    """Return the errors of the dead letters, once there are so many."""
    until(lambda: len(office.subscription.dead_letters) == count)
    return [letter.error for letter in office.subscription.dead_letters.list()]


def first_failure(office: Office) -> str:
    """Return the error of the first attempt of the message of key a, which is retried."""

    errors: list[str] = []

    def failed() -> bool:
        head = office.subscription.explain("a").head
        errors.extend(each.error for each in (() if head is None else head.failures[:1]))
        return bool(errors)

    until(failed)
    return errors[0]


@pytest.mark.parametrize(
    "answer",
    [OK, answers(204), answers(202, b"accepted"), answers(299), answers(200, b"x" * 100_000)],
)
def test_any_2xx_is_success(endpoint: HttpEndpoint, answer: Answer) -> None:
    office = office_for(endpoint)
    endpoint.answer = lambda posted, before: answer
    office.topic.push_many([("a", 1), ("a", 2), ("b", 3)])
    with office.subscription.start() as worker:
        until(lambda: worker.stats().succeeded == 3)
        until(lambda: worker.stats().in_flight == 0)
    assert [posted.body for posted in endpoint.requests if posted.key == "a"] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answers(500, b"no  stock\n\x00"), "HTTP 500: no stock \\x00"),
        (answers(503), "HTTP 503"),
        (answers(502, "Fehler über alles".encode()), "HTTP 502: Fehler über alles"),
        (answers(408), "HTTP 408"),
        (answers(425), "HTTP 425"),
        (answers(429), "HTTP 429"),
        (resets, "the connection was cut: Connection reset by peer"),
        (closes, "the connection was closed without an answer"),
        (half_a_body, "the connection was cut within the answer"),
        (silent, "no complete answer within TIMEOUT"),
        (endless, "no complete answer within TIMEOUT"),
        (no_http, "no valid answer: ClientResponseError"),
        (huge, "HTTP 500: yyy"),
    ],
)
def test_what_another_attempt_may_mend_is_retried_before_its_followers(
    endpoint: HttpEndpoint, answer: Answer, error: str
) -> None:
    office = office_for(endpoint, timeout="500ms", retry=Retry(None, first="20ms", max="20ms"))
    mended = threading.Event()
    endpoint.answer = lambda posted, before: (
        answer if posted.body == b"1" and not mended.is_set() else OK
    )
    office.topic.push_many([("a", 1), ("a", 2), ("b", 3)])
    with office.subscription.start() as worker:
        assert first_failure(office).startswith(error.replace("TIMEOUT", "0.5 s"))
        mended.set()
        until(lambda: worker.stats().succeeded == 3)
        stats = worker.stats()
        until(lambda: worker.stats().in_flight == 0)
    bodies = [posted.body for posted in endpoint.requests if posted.key == "a"]
    attempts = [posted.headers["ce-attempt"] for posted in endpoint.requests if posted.body == b"1"]
    assert (stats.failed >= 1, stats.rejected) == (True, 0)
    assert bodies == sorted(bodies)
    assert attempts == [str(number) for number in range(1, len(attempts) + 1)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answers(400, b'{"error": "no such order"}'), 'HTTP 400: {"error": "no such order"}'),
        (answers(404), "HTTP 404"),
        (answers(410, b"gone"), "HTTP 410: gone"),
        (answers(422, b"x" * 5000), f"HTTP 422: {'x' * 500}…"),
        (
            answers(302, location="https://login.example/form?token=s3cret"),
            "HTTP 302 to https://login.example/form: redirects are not followed",
        ),
        (answers(308), "HTTP 308: redirects are not followed"),
    ],
)
def test_what_no_attempt_can_mend_is_a_dead_letter_at_once(
    endpoint: HttpEndpoint, answer: Answer, error: str
) -> None:
    office = office_for(endpoint)
    endpoint.answer = lambda posted, before: answer if posted.key == "a" else OK
    office.topic.push_many([("a", 1), ("b", 2)])
    with office.subscription.start() as worker:
        assert errors_of(office) == [error]
        until(lambda: worker.stats().succeeded == 1)
        assert worker.stats().in_flight == 0
    assert len(endpoint.requests) == 2


def test_a_redirect_is_not_followed(endpoint: HttpEndpoint) -> None:
    with HttpEndpoint() as other:
        office = office_for(endpoint)
        endpoint.answer = lambda posted, before: answers(307, location=other.url)
        office.topic.push(1, key="a")
        with office.subscription.start():
            errors_of(office)
        assert other.requests == []


def test_statuses_that_the_endpoint_retries_are_not_final(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint, retry_statuses=[404, 302])
    endpoint.answer = lambda posted, before: (answers(404), answers(302), OK)[before]
    office.topic.push(1, key="a")
    with office.subscription.start() as worker:
        until(lambda: worker.stats().succeeded == 1)
    assert len(endpoint.requests) == 3


def test_an_endpoint_that_refuses_connections_is_retried_until_it_is_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        office = Office(endpoint=url, allow_private=True, retry=SOON)
        office.topic.push(1, key="a")
        with office.subscription.start() as worker:
            (error,) = errors_of(office)
            until(lambda: worker.stats().in_flight == 0)
    assert error == f"cannot connect to {url[7:-1]}: Connection refused"


def test_a_host_that_does_not_exist_is_retried() -> None:
    office = Office(endpoint="https://no-such-host.invalid/", retry=SOON)
    office.topic.push(1, key="a")
    with office.subscription.start() as worker:
        (error,) = errors_of(office)
        until(lambda: worker.stats().in_flight == 0)
    assert error.startswith("cannot resolve no-such-host.invalid: ")


RETRY_AFTER = {
    "seconds": "3",
    "date": format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True),
}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", RETRY_AFTER)
def test_retry_after_is_honoured_up_to_the_longest_delay_of_the_policy(
    endpoint: HttpEndpoint, status: int, form: str
) -> None:
    office = office_for(endpoint, retry=Retry(4, first="10ms", max="1h"))
    asked = RETRY_AFTER[form]
    endpoint.answer = lambda posted, before: answers(status, retry_after=asked)
    started = datetime.now(UTC)
    office.topic.push(1, key="a")
    with office.subscription.start() as worker:
        first_failure(office)
        head = office.subscription.explain("a").head
        assert worker.stats().in_flight == 0
    assert head is not None
    assert head.due is not None
    wait_s = (head.due - started).total_seconds()
    assert (3 <= wait_s < 60) if form == "seconds" else (3500 < wait_s < 3700)


def test_retry_after_does_not_shorten_the_delay_of_the_policy(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint, retry=Retry(4, first="1h", max="1h"))
    endpoint.answer = lambda posted, before: answers(503, retry_after="0")
    office.topic.push(1, key="a")
    with office.subscription.start():
        first_failure(office)
        head = office.subscription.explain("a").head
    assert head is not None
    assert head.due is not None
    assert (head.due - datetime.now(UTC)).total_seconds() > 1000


def test_an_endpoint_that_never_answers_does_not_keep_other_keys_waiting(
    endpoint: HttpEndpoint,
) -> None:
    office = office_for(endpoint, timeout="20s")
    endpoint.answer = lambda posted, before: silent if posted.key == "a" else OK
    office.topic.push_many([("a", 0), *((f"k{number}", number) for number in range(50))])
    with office.subscription.start(concurrency=2, drain_timeout="0s") as worker:
        until(lambda: worker.stats().succeeded == 50)
        assert worker.stats().in_flight == 1
        worker.stop()
