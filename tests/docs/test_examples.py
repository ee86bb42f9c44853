"""What README and docs show is run as it stands: a page that lies fails here.

Blocks fenced as `python` and `console` run, in order, page by page, in an empty directory. The
Python blocks of a page share one namespace; of a `console` block the commands run that call
`tailrace` or prepare its files, and each must exit with 0. A `toml` block that begins with a
comment of a file's name, `# shop.toml`, is that file from there on. What is not meant to run is
fenced as `text`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if page.exists()]
FENCE = re.compile(r"^```(python|console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
RUNS = re.compile(r"(?:^|\| *)tailrace\b|^(?:mkdir|printf|sed) ")
FILE_NAME = re.compile(r"# (\w+\.toml)\n")
COMMAND_SECONDS_MAX = 200
ON_SPARK = ("five-minutes.md",)


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


def run_python(block: Block, page: Path, namespace: ModuleType) -> None:
    # Empty lines in front make a traceback point at the page's own line.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    exec(code, namespace.__dict__)


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


def write_file(block: Block, directory: Path) -> None:
    if name := FILE_NAME.match(block.text):
        (directory / name.group(1)).write_text(block.text)


@pytest.fixture
def path_with_tailrace(tmp_path: Path) -> str:
    """A PATH whose `tailrace` is the one under test."""
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
    for block in blocks_of(page.read_text()):
        if block.language == "python":
            run_python(block, page, namespace)
        elif block.language == "toml":
            write_file(block, directory)
        else:
            run_console(block, page, path_with_tailrace)


def test_only_tailrace_commands_of_a_console_block_and_what_they_need_run() -> None:
    page = "a\n```console\n$ make demo\n$ echo x \\\n  | tailrace push o\ntailrace out\n```\n"
    (block,) = blocks_of(page)
    assert block.line == 3
    assert commands_of(block) == ["echo x \\\n  | tailrace push o"]
    needed = Block("console", "$ mkdir in\n$ pip install tailrace\nprintf out\n", 1)
    assert commands_of(needed) == ["mkdir in"]


def test_only_a_toml_block_that_begins_with_a_name_is_a_file(tmp_path: Path) -> None:
    write_file(Block("toml", "# shop.toml\n[pipeline]\n", 1), tmp_path)
    write_file(Block("toml", "# Half a file.\n[reader]\n", 1), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["shop.toml"]
