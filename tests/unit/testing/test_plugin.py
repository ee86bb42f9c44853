"""The plug-in of pytest, as users' tests load it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SHOP = """
from tailrace import App, Delivery, Retry

app = App()

@app.subscription("mailer", topic="orders", retry=Retry(attempts=3, first="10m", max="10m"))
def mail(order: Delivery[int]) -> None:
    assert order.attempt > 1, "the mail server is down"
"""

TEST = """
from shop import app

def test_an_order_is_mailed_again(tailrace):
    run = tailrace.run(app)
    run.push("orders", 1, key="c7")
    run.until_idle()
    assert [each.outcome.value for each in run.deliveries("mailer")] == ["failed", "succeeded"]

def test_runs_share_nothing(tailrace):
    assert tailrace.run(app).deliveries("mailer") == []
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with an app, its tests, and a package whose metadata has our entry points."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TEST)
    metadata = tmp_path / "installed" / "tailrace-1.dist-info"
    metadata.mkdir(parents=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(name, module)] = project["entry-points"]["pytest11"].items()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tailrace\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    return tmp_path


def run_pytest(directory: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run pytest in a process of its own, with the plug-ins that the entry points name."""
    paths = [directory / "installed", ROOT / "src"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_test_runs_an_app_by_the_fixture_of_the_entry_point(shop: Path) -> None:
    status, printed = run_pytest(shop, "-q", "-W", "error")
    assert status == 0, printed
    assert "2 passed" in printed


def test_the_plug_in_can_be_named_if_pytest_does_not_look_for_plug_ins(shop: Path) -> None:
    status, printed = run_pytest(shop, "-q", "-p", "tailrace", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert status == 0, printed


def test_the_plug_in_can_be_left_out(shop: Path) -> None:
    status, printed = run_pytest(shop, "-q", "-p", "no:tailrace")
    assert status == 1
    assert "fixture 'tailrace' not found" in printed


def test_the_fixture_is_listed_with_its_use(shop: Path) -> None:
    _, printed = run_pytest(shop, "--fixtures")
    assert "run = tailrace.run(app)" in printed


def test_a_run_of_pytest_without_apps_imports_nothing_of_ours_but_the_plug_in(shop: Path) -> None:
    (shop / "test_other.py").write_text(
        "import sys\n"
        "def test_other():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'tailrace'}\n"
        "    assert ours == {'tailrace', 'tailrace.testing', 'tailrace.testing.plugin'}\n"
        "    assert 'pyarrow' not in sys.modules\n"
    )
    status, printed = run_pytest(shop, "-q", "test_other.py")
    assert status == 0, printed


def test_the_handlers_errors_are_shown_with_a_test_that_fails(shop: Path) -> None:
    (shop / "test_wrong.py").write_text(
        "from shop import app\n"
        "def test_wrong(tailrace):\n"
        "    run = tailrace.run(app)\n"
        "    run.push('orders', 1, key='c7')\n"
        "    run.until_idle()\n"
        "    assert len(run.deliveries('mailer')) == 1\n"
    )
    only_ours = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    status, printed = run_pytest(shop, "-q", "-p", "tailrace", "test_wrong.py", **only_ours)
    assert status == 1
    assert 'assert order.attempt > 1, "the mail server is down"' in printed
