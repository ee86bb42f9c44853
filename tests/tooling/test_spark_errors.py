"""The message of Tailrace is found in an error of Spark."""

from __future__ import annotations

from tests.support.spark_errors import tailrace_message


def test_our_message_is_found_in_an_error_of_spark() -> None:
    error = "[X] Failed: tailrace.errors.UnknownTopic: no topic 'a' · create it\n SQLSTATE: 38000"
    assert tailrace_message(RuntimeError(error)) == "no topic 'a' · create it"
    assert tailrace_message(RuntimeError("something else")) is None
