"""The examples of README and docs pass `mypy --strict` as a user's code."""

from __future__ import annotations

from pathlib import Path

from mypy import api

from tests.docs.test_examples import PAGES, ROOT, blocks_of, missing_modules


def module_of(page: Path) -> str:
    """Return the Python blocks of a page as one module, each on its own lines."""
    lines: list[str] = []
    for block in blocks_of(page.read_text()):
        if block.language == "python" and not missing_modules(block):
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines)


def test_every_example_type_checks(tmp_path: Path) -> None:
    for page in PAGES:
        if code := module_of(page):
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
