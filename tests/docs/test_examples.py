"""The examples of README and docs are run as they stand.

Blocks fenced as `python` and `console` run, in order, page by page, in an empty directory. The
Python blocks of a page share one namespace, and the tests that they define run at its end. Of a
`console` block the commands run that call `tailrace` or prepare its files, and each must exit with
0. On some pages the output that is shown under a command is compared too: only numbers, users and
the directory may differ, and no number of a name or position, `c7` or `orders/0.3@0`. A `toml`
block that begins with a comment of a file's name, `# shop.toml`, is that file from there on. So is
a `python` block that begins with `# shop.py`, which runs all the same, and which later blocks may
import. Blocks that are not meant to run are fenced as `text`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tailrace import InvalidValue
from tailrace.testing import AppRuns

ROOT = Path(__file__).parents[2]
PAGES = [page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if page.exists()]
FENCE = re.compile(r"^```(python|console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
RUNS = re.compile(r"(?:^|\| *)tailrace\b|^(?:mkdir|printf|sed) ")
FILE_NAME = re.compile(r"# (\w+\.(?:toml|py))\n")
DIRECTORY = "/srv/shop"
"""The directory in which pages run their examples, as they show it."""
USER = re.compile(r"\S+@\S+(?= \()")
NUMBER = re.compile(r"(?<![\w.@/])\d[\d.,:-]*(?: kB| bytes?)?")
EXACT_OUTPUT = ("README.md", "five-minutes.md", "subscriptions.md")
"""The pages whose shown outputs are compared."""
COMMAND_SECONDS_MAX = 200
PUBLIC = {
    "tailrace",
    "tailrace.aio",
    "tailrace.functions",
    "tailrace.readers",
    "tailrace.spark",
    "tailrace.testing",
    "tailrace.writers",
}
ON_SPARK = ("five-minutes.md",)
OPTIONAL = ("pydantic",)
"""Modules that examples use and Tailrace does not need. Such an example is the last of its page:
without the module the test is skipped there, after all other examples of the page have run."""


class Block(NamedTuple):
    """A fenced block and the line of the page its text starts on."""

    language: str
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    return [
        Block(fence.group(1), fence.group(2), page.count("\n", 0, fence.start(2)) + 1)
        for fence in FENCE.finditer(page)
    ]


def commands_of(block: Block) -> list[str]:
    commands = [found.group(1) for found in COMMAND.finditer(block.text)]
    return [command for command in commands if RUNS.search(command)]


def shown_output(block: Block, command: str) -> str:
    """Return the output that the block shows under a command; empty if it shows none."""
    _, _, after = block.text.partition(f"$ {command}\n")
    return re.split(r"^\$ ", after, maxsplit=1, flags=re.MULTILINE)[0]


def comparable(output: str, directory: str) -> list[str]:
    """Return the lines of an output without what differs from run to run."""
    output = NUMBER.sub("0", USER.sub("USER", output.replace(directory, DIRECTORY)))
    return [" ".join(line.split()) for line in output.splitlines()]


def assert_printed(shown: str, printed: str, where: str) -> None:
    """Fail unless a page shows what a command printed. `…` at the end of a line stands for more."""
    expected, found = comparable(shown, DIRECTORY), comparable(printed, str(Path.cwd()))
    for number, line in enumerate(expected):
        if line.endswith("…") and number < len(found) and found[number].startswith(line[:-1]):
            found[number] = line
    assert expected == found, f"{where}\n{printed}"


def missing_modules(block: Block) -> list[str]:
    """Return the optional modules that the block imports and that are not installed."""
    missing = [name for name in OPTIONAL if find_spec(name) is None]
    return [name for name in missing if re.search(rf"^(?:from|import) {name}\b", block.text, re.M)]


def run_python(block: Block, page: Path, namespace: ModuleType) -> None:
    if missing := missing_modules(block):
        pytest.skip(f"{page.name}: not installed: {', '.join(missing)}; make install installs it")
    # Empty lines in front make a traceback point at the page's own line.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    exec(code, namespace.__dict__)


def run_tests(namespace: ModuleType) -> None:
    """Run the tests that a page defines. Each takes our fixture."""
    tests = {name: each for name, each in vars(namespace).items() if name.startswith("test_")}
    for test in tests.values():
        with AppRuns() as runs:
            test(runs)


def run_console(block: Block, page: Path, path: str) -> None:
    for command in commands_of(block):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{page.name}: $ {command}\n{done.stdout}"
        shown = shown_output(block, command)
        if shown and page.name in EXACT_OUTPUT:
            assert_printed(shown, done.stdout, f"{page.name}: $ {command}")


def write_file(block: Block, directory: Path) -> None:
    if name := FILE_NAME.match(block.text):
        (directory / name.group(1)).write_text(block.text)


@pytest.fixture
def path_with_tailrace(tmp_path: Path) -> str:
    """A PATH with the `tailrace` under test."""
    script = tmp_path / "bin" / "tailrace"
    script.parent.mkdir()
    script.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from tailrace.cli import main; main()' \"$@\"\n"
    )
    script.chmod(0o755)
    return f"{script.parent}{os.pathsep}{os.environ['PATH']}"


def pages() -> Iterator[Any]:
    for page in PAGES:
        marks = [pytest.mark.xdist_group("spark")] if page.name in ON_SPARK else []
        yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", list(pages()))
def test_every_example_of_the_page_runs(
    page: Path, tmp_path: Path, path_with_tailrace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = ModuleType("example")
    monkeypatch.setitem(sys.modules, namespace.__name__, namespace)
    directory = tmp_path / "empty"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.syspath_prepend(directory)
    known = set(sys.modules)
    try:
        for block in blocks_of(page.read_text()):
            write_file(block, directory)
            if block.language == "python":
                run_python(block, page, namespace)
            elif block.language == "console":
                run_console(block, page, path_with_tailrace)
        run_tests(namespace)
    finally:
        for file in directory.glob("*.py"):
            if file.stem not in known:
                sys.modules.pop(file.stem, None)


def test_the_tests_of_a_page_run() -> None:
    namespace = ModuleType("example")
    exec("def test_it(tailrace): tailrace.run(None)", namespace.__dict__)
    with pytest.raises(InvalidValue, match="app"):
        run_tests(namespace)


def test_only_tailrace_commands_of_a_console_block_and_their_setup_run() -> None:
    page = "a\n```console\n$ make demo\n$ echo x \\\n  | tailrace push o\ntailrace out\n```\n"
    (block,) = blocks_of(page)
    assert block.line == 3
    assert commands_of(block) == ["echo x \\\n  | tailrace push o"]
    needed = Block("console", "$ mkdir in\n$ pip install tailrace\nprintf out\n", 1)
    assert commands_of(needed) == ["mkdir in"]


def test_a_block_that_begins_with_a_name_is_a_file(tmp_path: Path) -> None:
    write_file(Block("toml", "# shop.toml\n[pipeline]\n", 1), tmp_path)
    write_file(Block("toml", "# Half a file.\n[reader]\n", 1), tmp_path)
    write_file(Block("python", "# shop.py\nimport tailrace\n", 1), tmp_path)
    write_file(Block("python", "# test_shop.py, with `import shop`\n", 1), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"shop.toml", "shop.py"}


def test_numbers_users_and_the_directory_of_an_output_may_differ() -> None:
    shown = "writer lake  /srv/shop/out/\n2026-11-16 03:10Z  ann@build-7 (4121)  1 row of 2…\n"
    printed = (
        f"writer lake {Path.cwd()}/out/\n2027-01-02 11:59Z eve@host (7) 5 row of 300 records\n"
    )
    assert_printed(shown, printed, "a page")
    with pytest.raises(AssertionError, match="a page"):
        assert_printed(shown, printed.replace("lake", "crm"), "a page")


@pytest.mark.parametrize(
    "printed", ["orders/0.2@0 c7 9.5", "orders/0.3@1 c7 9.5", "orders/0.3@0 c8 9"]
)
def test_the_numbers_of_names_and_positions_must_not_differ(printed: str) -> None:
    shown = "orders/0.3@0 c7 9.5"
    assert_printed(shown, "orders/0.3@0 c7 12", "a page")
    with pytest.raises(AssertionError, match="a page"):
        assert_printed(shown, printed, "a page")


def test_the_output_of_a_command_ends_with_the_next_command() -> None:
    block = Block("console", "$ tailrace a\none\ntwo\n$ tailrace b\n$ tailrace c\nthree\n", 1)
    shown = [shown_output(block, f"tailrace {name}") for name in "abc"]
    assert shown == ["one\ntwo\n", "", "three\n"]


def test_examples_import_from_public_packages_alone() -> None:
    imported = {
        module
        for page in PAGES
        for block in blocks_of(page.read_text())
        if block.language == "python"
        for module in re.findall(r"^(?:from|import) (tailrace[\w.]*)", block.text, re.MULTILINE)
    }
    assert imported <= PUBLIC
