"""An app is loaded from a module or a file, and what is wrong is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.operations.app.load import load_app, user_traceback

SHOP = """
import tailrace
app = tailrace.App()
class Settings:
    worker = tailrace.App()
number = 7
@app.subscription("mailer", topic="orders")
def mail(order): ...
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory. Modules that a test loads are forgotten after it."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def names(source: str) -> list[str]:
    return [each.name for each in load_app(source).subscriptions]


def test_a_module_is_found_in_the_current_directory(directory: Path) -> None:
    (directory / "shop_1.py").write_text(SHOP)
    assert names("shop_1:app") == ["mailer"]


def test_the_app_of_a_module_is_called_app_if_no_name_is_given(directory: Path) -> None:
    (directory / "shop_2.py").write_text(SHOP)
    assert names("shop_2") == names("shop_2.py") == ["mailer"]


def test_an_app_may_be_an_attribute_of_an_attribute(directory: Path) -> None:
    (directory / "shop_3.py").write_text(SHOP)
    assert names("shop_3:Settings.worker") == []


def test_a_file_is_loaded_with_the_modules_beside_it(directory: Path) -> None:
    (directory / "src").mkdir()
    (directory / "src" / "shop_4.py").write_text("from shop_4_app import app")
    (directory / "src" / "shop_4_app.py").write_text(SHOP)
    assert names("src/shop_4.py:app") == ["mailer"]


def test_a_file_of_a_package_is_loaded_as_its_module(directory: Path) -> None:
    package = directory / "src" / "shop_5" / "orders"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "mail.py").write_text("from ..app import app")
    (package.parent / "app.py").write_text(SHOP)
    assert names("src/shop_5/orders/mail.py:app") == ["mailer"]
    assert "shop_5.orders.mail" in sys.modules


def test_a_file_that_is_hidden_by_a_loaded_module_is_refused(directory: Path) -> None:
    (directory / "json.py").write_text(SHOP)
    with pytest.raises(ConfigError, match=r"module 'json' is .*__init__.py · rename the file"):
        load_app("json.py:app")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("shop_9:app", "no module 'shop_9' in .* name a file · valid: MODULE:NAME"),
        ("shop_6.orders:app", "no module 'shop_6.orders'"),
        ("shop_9.orders:app", "no module 'shop_9'"),
        ("shop_6:ap", r"shop_6 has no 'ap' · did you mean 'app'\? · the module is .*shop_6.py"),
        ("shop_6:x", "shop_6 has no 'x' · its apps: app"),
        ("shop_6:number", "shop_6:number is a int, not a tailrace.App"),
        ("src/shop_9.py:app", "no file src/shop_9.py · the current directory is"),
        ("empty_6:app", "empty_6 has no 'app' · it has no tailrace.App"),
        (":app", "':app' names no app · valid: MODULE:NAME"),
        ("shop_6:", "'shop_6:' names no app"),
        ("..:app", "'..' is not the name of a module"),
    ],
)
def test_an_app_that_is_not_there_is_refused(directory: Path, source: str, problem: str) -> None:
    (directory / "shop_6.py").write_text(SHOP)
    (directory / "empty_6.py").write_text("")
    with pytest.raises(ConfigError, match=problem) as caught:
        load_app(source)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import shop_9_missing", "ModuleNotFoundError: No module named 'shop_9_missing'"),
        ("def f():\n    raise ValueError('x')\nf()", "ValueError: x"),
        ("import sys\nsys.exit(4)", "SystemExit: 4"),
        ("app = (", "SyntaxError: '\\(' was never closed"),
    ],
)
def test_an_error_of_the_users_module_is_raised_with_its_traceback(
    directory: Path, text: str, problem: str
) -> None:
    (directory / "shop_7.py").write_text(text)
    for source in ("shop_7:app", "shop_7.py:app"):
        with pytest.raises(ConfigError, match=f"shop_7.*cannot be imported: {problem}") as caught:
            load_app(source)
        assert caught.value.__cause__ is not None
        shown = user_traceback(caught.value.__cause__)
        assert "shop_7.py" in shown.splitlines()[0 if "app = (" in text else 1]
        assert "importlib" not in shown
        assert "load.py" not in shown
