"""The repository's own rules, each enforced: sizes, names, words, docstrings, lists kept whole."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "docs", ".ci")
TEXT_SUFFIXES = {"", ".md", ".py", ".toml"}
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
LINE_CHARACTERS_MAX = 100
BANNED_NAMES = {"common", "helpers", "manager", "misc", "models", "types", "utils"}
# Put together here so that this file does not contain what it forbids.
UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:" + "|".join(["work", "root", r"home/\w+"]) + r")/")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _files() -> list[Path]:
    """Every text file of the repository that people write."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return sorted(
        path
        for path in [*ROOT.iterdir(), *inside]
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != "LICENSE"
    )


FILES = _files()
MODULES = [path for path in FILES if path.suffix == ".py"]
PAGES = [path for path in FILES if path.suffix == ".md"]


def _assert_none(found: list[str], what: str) -> None:
    """Fail with the whole list, which pytest would cut short."""
    if found:
        pytest.fail("\n  ".join([f"{len(found)} {what}:", *found]), pytrace=False)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text(), filename=str(module))


def _skip_marks(tree: ast.Module) -> Iterator[tuple[int, bool]]:
    """Each `pytest.mark.skip` or `skipif`: its line, and whether it is called with a reason."""
    reasoned = {
        id(call.func)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and any(word.arg == "reason" for word in call.keywords)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("pytest.mark.skip"):
            yield node.lineno, id(node) in reasoned


def _requirements() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return {re.split(r"[\[<>=~! ;]", line, maxsplit=1)[0] for line in lines}


def test_functions_are_short() -> None:
    long = [
        f"{_name(module)}:{node.lineno} {node.name}"
        for module in MODULES
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    _assert_none(long, f"functions over {FUNCTION_LINES_MAX} lines")


def test_modules_are_short() -> None:
    long = [
        _name(module)
        for module in MODULES
        if module.is_relative_to(ROOT / "src")
        and len(module.read_text().splitlines()) > FILE_LINES_MAX
    ]
    _assert_none(long, f"modules over {FILE_LINES_MAX} lines")


def test_lines_are_short() -> None:
    long = [
        f"{_name(module)}:{number}"
        for module in MODULES
        for number, line in enumerate(module.read_text().splitlines(), start=1)
        if len(line) > LINE_CHARACTERS_MAX
    ]
    _assert_none(long, f"lines over {LINE_CHARACTERS_MAX} characters")


def test_modules_are_named_for_a_noun() -> None:
    banned = [
        _name(module)
        for module in MODULES
        if BANNED_NAMES & set(module.relative_to(ROOT).with_suffix("").parts)
    ]
    _assert_none(banned, "module names that say nothing")


def test_every_module_has_a_docstring() -> None:
    silent = [_name(module) for module in MODULES if not ast.get_docstring(_tree(module))]
    _assert_none(silent, "modules without a docstring")


def test_every_skipped_test_says_why() -> None:
    silent = [
        f"{_name(module)}:{line}"
        for module in MODULES
        for line, has_reason in _skip_marks(_tree(module))
        if not has_reason
    ]
    _assert_none(silent, "skipped without a reason")


@pytest.mark.parametrize(
    "pattern", [UNFINISHED, MACHINE_PATH], ids=["unfinished work", "paths of one machine"]
)
def test_nothing_left_behind(pattern: re.Pattern[str]) -> None:
    found = [
        f"{_name(path)}:{number} {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    _assert_none(found, "left behind")


def test_the_lock_has_hashes_and_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--find-links" not in lock
    blocks = re.split(r"^(?=[A-Za-z])", lock, flags=re.MULTILINE)[1:]
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


def test_the_lock_has_every_dependency() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", lock, re.MULTILINE))
    assert _requirements() - locked == set()


def test_every_dependency_has_its_reasons() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    explained = set(re.findall(r"^\| `([^`\[]+)", page, re.MULTILINE))
    assert explained == _requirements()


def test_every_make_target_is_helpful() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][\w-]*):(.*)$", makefile, re.MULTILINE)
    assert targets
    assert [name for name, rest in targets if not re.search(r" ## \S", rest)] == []


def test_the_changelog_tells_of_this_version() -> None:
    source = (ROOT / "src" / "tailrace" / "__init__.py").read_text()
    version = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    assert version is not None
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {"Unreleased", version.group(1)} & set(headings)


def test_links_between_pages_resolve() -> None:
    broken = [
        f"{_name(page)}: {target}"
        for page in PAGES
        for target in LINK.findall(FENCED.sub("", page.read_text()))
        if not (page.parent / target).exists()
    ]
    _assert_none(broken, "links that lead nowhere")
