"""The examples of README and docs pass `mypy --strict` as a user's code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api

from tests.docs.test_examples import PAGES, ROOT, blocks_of, missing_modules

FILE = re.compile(r"# (\w+)\.py\n")
"""The first line of a block that is a file of its own."""


def imported_modules(text: str) -> dict[str, str]:
    """Return the blocks of a page that are files and that others import, by the module's name."""
    files = {file[1]: each.text for each in blocks_of(text) if (file := FILE.match(each.text))}
    imports = {name: rf"^(from {name} import |import {name}$)" for name in files}
    imported = {name for name in files if re.search(imports[name], text, re.MULTILINE)}
    return {name: files[name] for name in imported}


def lines_of(text: str) -> Iterator[str]:
    """Yield the other Python blocks of a page as one module, each on its own lines."""
    modules, line = imported_modules(text), 1
    for block in blocks_of(text):
        python = block.language == "python" and block.text not in modules.values()
        if python and not missing_modules(block):
            yield from [""] * (block.line - line)
            yield from block.text.splitlines()
            line = block.line + len(block.text.splitlines())


def test_every_example_type_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(tmp_path))
    for page in PAGES:
        text = page.read_text()
        for name, module in imported_modules(text).items():
            (tmp_path / f"{name}.py").write_text(module)
        if code := "\n".join(lines_of(text)):
            # Not a name that an example may import.
            (tmp_path / f"{page.stem.replace('-', '_').lower()}_page.py").write_text(code + "\n")
    config = [
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
    ]
    said, wrong, _ = api.run([*config, *map(str, sorted(tmp_path.iterdir()))])
    assert wrong == ""
    assert [line for line in said.splitlines() if line.startswith(str(tmp_path))] == []
