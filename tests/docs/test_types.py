"""What README and docs show type-checks as a user's own code would, by `mypy --strict`."""

from __future__ import annotations

from pathlib import Path

from mypy import api

from tests.docs.test_examples import PAGES, ROOT, blocks_of


def module_of(page: Path) -> str:
    """The Python blocks of a page as one module, each on the lines it has there."""
    lines: list[str] = []
    for block in blocks_of(page.read_text()):
        if block.language == "python":
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
