"""Loading an app, or the handler of a subscription, from a module or a file."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, NamedTuple

from tailrace.app.app import App
from tailrace.errors import ConfigError
from tailrace.suggestion import did_you_mean

_FORMS: Final = (
    "valid: MODULE:NAME such as shop.orders:app, or FILE:NAME such as shop/orders.py:app"
)
_ATTRIBUTE: Final = "app"
"""The name of the app in a module if none is given."""


class _Kind(NamedTuple):
    """The kind of an attribute that is wanted, in one word and in several."""

    one: str
    several: str
    fits: Callable[[Any], bool]


_APP: Final = _Kind("tailrace.App", "apps", lambda value: isinstance(value, App))
_HANDLER: Final = _Kind("function", "functions", inspect.isroutine)


def load_app(source: str) -> App:
    """Import an app: ``shop.orders:app``, ``shop/orders.py:app``, or either without its ``:app``.

    Modules are found in the current directory too. A file is imported as the module that it is in
    its package, or beside the other modules of its directory. `ConfigError` if there is no such
    module or app, or if the module cannot be imported. The last has the error of the module as its
    cause; see `user_traceback`.
    """
    where, colon, attribute = source.rpartition(":")
    if not colon:
        where, attribute = source, _ATTRIBUTE
    if not where or not attribute:
        raise ConfigError(f"{source!r} names no app", _FORMS)
    return _app_of(_loaded(where), where, attribute)


def load_handler(source: str) -> Any:
    """Import the handler of a subscription: ``shop.orders:mail``, or ``shop/orders.py:mail``.

    `ConfigError` as for an app.
    """
    where, _, attribute = source.rpartition(":")
    if not where or not attribute:
        raise ConfigError(f"{source!r} names no function", _FORMS.replace(":app", ":mail"))
    module = _loaded(where)
    return _attribute_of(module, where, attribute, _HANDLER)


def user_traceback(error: BaseException) -> str:
    """Return the traceback of an error, from the first line of the user's module on."""
    return "".join(traceback.format_exception(type(error), error, _user_trace(error)))


def _user_trace(error: BaseException) -> TracebackType | None:
    """Return the part of a traceback that is not the search for the module; None if it is all."""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not (file.startswith("<frozen importlib") or file in (__file__, importlib.__file__)):
            break
        trace = trace.tb_next
    return trace


def _loaded(where: str) -> ModuleType:
    """Import a module, by its name or by its file."""
    _search_first(os.getcwd())
    return _imported_file(Path(where)) if where.endswith(".py") else _imported(where, where)


def _search_first(directory: str) -> None:
    if directory not in sys.path:
        sys.path.insert(0, directory)


def _imported_file(path: Path) -> ModuleType:
    file = path.resolve()
    if not file.is_file():
        raise ConfigError(f"no file {path}", f"the current directory is {os.getcwd()}", _FORMS)
    name, directory = file.stem, file.parent
    while (directory / "__init__.py").exists():
        name, directory = f"{directory.name}.{name}", directory.parent
    _search_first(str(directory))
    module = _imported(name, str(path))
    if module.__file__ is None or Path(module.__file__).resolve() != file:
        raise ConfigError(
            f"{path} cannot be imported: module {name!r} is {module.__file__ or 'built in'}",
            "rename the file",
        )
    return module


def _imported(name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The module itself, or the package that should have it, and not one that it imports.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(where, error) from error
        raise ConfigError(
            f"no module {error.name!r} in {os.getcwd()}, and none is installed",
            "run the command in the directory of the module, or name a file",
            _FORMS,
        ) from None
    except (Exception, SystemExit) as error:
        if _user_trace(error) is None and not isinstance(error, SyntaxError):
            raise ConfigError(f"{where!r} is not the name of a module", _FORMS) from None
        raise _failed(where, error) from error


def _failed(where: str, error: BaseException) -> ConfigError:
    return ConfigError(f"{where} cannot be imported: {type(error).__name__}: {error}")


def _app_of(module: ModuleType, where: str, attribute: str) -> App:
    found = _attribute_of(module, where, attribute, _APP)
    if not isinstance(found, App):
        raise ConfigError(
            f"{where}:{attribute} is a {type(found).__name__}, not a tailrace.App",
            f"the module is {module.__file__}",
        )
    return found


def _attribute_of(module: ModuleType, where: str, attribute: str, kind: _Kind) -> Any:
    """Return an attribute of a module; `ConfigError`, with those of its kind, if it has none."""
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [name for name, value in vars(module).items() if kind.fits(value)]
            raise ConfigError(
                f"{where} has no {attribute!r}",
                did_you_mean(attribute, names)
                or (
                    f"its {kind.several}: {', '.join(names)}" if names else f"it has no {kind.one}"
                ),
                f"the module is {module.__file__}",
            )
        found = getattr(found, part)
    return found
