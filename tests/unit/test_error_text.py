"""Errors as text: for people, and as they are stored."""

from __future__ import annotations

import asyncio

from tailrace.error_text import TRACE_CHARACTERS_MAX, describe_error, describe_trace, storable


def trace_of(code: str, module: str = "shop.mails") -> str:
    """Return the traceback of a function that a module of this name defines."""
    namespace: dict[str, object] = {"__name__": module}
    exec(compile(f"def handle():\n    {code}", "mails.py", "exec"), namespace)
    # As Tailrace calls the function of a user.
    caller = {
        "__name__": "tailrace.subscription.worker.runners.thread_calls",
        "handle": namespace["handle"],
    }
    try:
        exec(compile("handle()", "thread_calls.py", "exec"), caller)
    except BaseException as error:
        return describe_trace(outside_of_test(error))
    raise AssertionError("the code raises")


def outside_of_test(error: BaseException) -> BaseException:
    """Return an error without the frame of the test, which Tailrace does not see."""
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_a_traceback_starts_with_the_function_of_the_user() -> None:
    assert trace_of("1 / 0").splitlines() == [
        "Traceback (most recent call last):",
        '  File "mails.py", line 2, in handle',
        "ZeroDivisionError: division by zero",
    ]


def test_a_traceback_without_a_function_of_the_user_is_kept_whole() -> None:
    assert "thread_calls.py" in trace_of("1 / 0", module="tailrace.payload.payload")


def test_the_traceback_of_a_coroutine_starts_with_it_too() -> None:
    async def handle() -> None:
        raise ValueError("no stock")

    try:
        asyncio.run(handle())
    except ValueError as error:
        trace = describe_trace(outside_of_test(error))
    assert "asyncio" not in trace
    assert trace.endswith("ValueError: no stock\n")


def test_the_end_of_a_long_traceback_is_kept() -> None:
    trace = trace_of(f"raise ValueError({'x' * 3 * TRACE_CHARACTERS_MAX!r} + 'end')")
    assert len(trace) == TRACE_CHARACTERS_MAX + 4
    assert trace.startswith("...\n")
    assert trace.endswith("end\n")


def test_every_text_can_be_stored() -> None:
    error = ValueError("caf\udce9")
    assert storable(describe_error(error)).encode() == b"ValueError: caf\\udce9"
    assert describe_trace(error).encode() == b"ValueError: caf\\udce9\n"


def test_an_error_whose_text_cannot_be_shown_has_its_kind() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe_error(Broken()) == "Broken: (its text cannot be shown)"
    assert "Broken" in describe_trace(Broken())
