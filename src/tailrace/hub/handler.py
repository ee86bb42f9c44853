"""Handlers as users write them: their names, their signatures and the types of their payloads.

A handler takes one argument, a `Delivery`. The annotation of its first parameter, for example
``Delivery[Order]``, has the type of the payload.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from tailrace.delivery.delivery import Delivery
from tailrace.errors import InvalidValue
from tailrace.payload import Payload

_FORMS: Final = "a function or coroutine function of one argument, a Delivery"
_ANNOTATIONS: Final = "Delivery[TYPE], Delivery, or no annotation"
_LISTS: Final = (list, Sequence, Iterable)
_UNTYPED: Final = (inspect.Parameter.empty, Any, object)


def label_of(function: object) -> str:
    """Return the name of a handler in errors and logs: ``shop.orders.mail``."""
    if isinstance(function, functools.partial):
        return label_of(function.func)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', None) or '?'}.{named.__qualname__}"


def check_handler(function: object, what: str) -> None:
    """Raise `InvalidValue` if the function cannot be called with one delivery.

    `what` names the handler in the error.
    """
    if inspect.isclass(function) or not callable(function):
        raise InvalidValue(what, function, _FORMS, problem=f"{what} is not a function")
    called = function if inspect.isroutine(function) else type(function).__call__
    for each in (function, called):
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise InvalidValue(
                what, function, _FORMS, problem=f"{what} has a yield, so a call would not run it"
            )
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except ValueError:  # Some functions of C modules have no signature.
        return
    try:
        signature.bind(object())
    except TypeError as error:
        remedy = ""
        if next(iter(signature.parameters), "") == "self":
            remedy = "declare the method of an instance: app.subscription(...)(instance.method)"
        raise InvalidValue(
            what,
            function,
            _FORMS,
            remedy,
            problem=f"{what} cannot be called with one argument: its parameters are {signature}",
        ) from error


def payload_type(function: Callable[..., object], names: Mapping[str, Any], what: str) -> Any:
    """Return the payload type of a handler's annotation; None if it has none.

    `names` are the local names where the handler is declared. `InvalidValue` if the annotation
    cannot be evaluated, is not one of a delivery, or has a type that cannot be decoded.
    """
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:
        return None
    if first is None or first.annotation in _UNTYPED:
        return None
    kind = _type_of_value(_evaluated(function, first, names, what), first, what)
    try:
        Payload(kind)
    except InvalidValue as error:
        problem = f"{what} takes payloads of a type that cannot be decoded: {error}"
        raise InvalidValue(what, kind, "", problem=problem) from error
    return kind


def check_batch(
    function: Callable[..., object], batch: bool, names: Mapping[str, Any], what: str
) -> None:
    """Check that a handler of batches takes lists, and another one single deliveries, as far as its
    annotation says. The arguments are those of `payload_type`."""
    lists = _takes_lists(function, names, what)
    if lists is None or lists is batch:
        return
    if batch:
        raise InvalidValue(
            what, function, "list[Delivery[TYPE]] with batch=True",
            problem=f"{what} takes one delivery, and batch=True calls it with a list of them",
        )  # fmt: skip
    raise InvalidValue(
        what, function, "Delivery[TYPE]", "declare it with batch=True",
        problem=f"{what} takes a list of deliveries, and is called with one at a time",
    )  # fmt: skip


def _takes_lists(
    function: Callable[..., object], names: Mapping[str, Any], what: str
) -> bool | None:
    """Return if a handler takes lists of deliveries, by its annotation; None if it has none.

    The arguments are those of `payload_type`.
    """
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:
        return None
    if first is None or first.annotation in _UNTYPED:
        return None
    annotation = _evaluated(function, first, names, what)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return None if annotation in _UNTYPED else get_origin(annotation) in _LISTS


def _evaluated(
    function: Callable[..., object],
    parameter: inspect.Parameter,
    names: Mapping[str, Any],
    what: str,
) -> Any:
    """Return the annotation of a parameter with every name in it replaced by its value."""
    annotated = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    module_names = getattr(_plain(function), "__globals__", {})
    try:
        hints = get_type_hints(annotated, module_names, dict(names), include_extras=True)
    except Exception as error:
        raise InvalidValue(
            what,
            parameter.annotation,
            "",
            "define or import the type at the top of the module of the handler, and not under"
            " `if TYPE_CHECKING`",
            problem=f"the annotation {_text(parameter.annotation)} of {what} cannot be evaluated:"
            f" {type(error).__name__}: {error}",
        ) from error
    return hints[parameter.name]


def _type_of_value(annotation: Any, parameter: inspect.Parameter, what: str) -> Any:
    """Return the type within ``Delivery[...]``; None if any is accepted."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation in _UNTYPED:
        return None
    if get_origin(annotation) in _LISTS:  # a handler that takes several messages at once
        (annotation,) = get_args(annotation)
    delivery = get_origin(annotation) or annotation
    if not (inspect.isclass(delivery) and issubclass(Delivery, delivery)):
        shown = _text(parameter.annotation)
        raise InvalidValue(
            what,
            annotation,
            _ANNOTATIONS,
            f"write {parameter.name}: Delivery[{shown}] and use {parameter.name}.value",
            problem=f"{what} takes {shown}, not a Delivery",
        )
    (kind,) = get_args(annotation) or (None,)
    return None if kind in _UNTYPED or isinstance(kind, TypeVar) else kind


def _plain(function: Any) -> Any:
    """Return the function whose code runs in the end, without partial calls and decorators."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isroutine(function):
            return function
        else:
            function = type(function).__call__


def _text(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)
