"""The rules of the repository: sizes, names, layout, docstrings and complete lists."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "java", "docs", ".ci")
TEXT_SUFFIXES = {"", ".md", ".py", ".toml"}
NOT_OURS = {".git", "LICENSE"}
"""Files that nobody here writes. In a linked working tree of git, `.git` is a file."""
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
LINE_CHARACTERS_MAX = 100
PACKAGE_MODULES_MAX = 20
WIDE_PACKAGES = {"backend/embedded", "topic"}
"""Packages that may have more modules: each has one idea that more rooms would not divide."""
SHARED_CLASS_NAMES = {
    "Consumer",
    "DeadLetters",
    "Group",
    "Hub",
    "Producer",
    "Queue",
    "Subscription",
    "Topic",
    "Worker",
}
"""Nouns of the glossary that name a class in more than one room: the room tells them apart."""
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
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name not in NOT_OURS
    )


FILES = _files()
MODULES = [path for path in FILES if path.suffix == ".py"]
PAGES = [path for path in FILES if path.suffix == ".md"]
PACKAGE = ROOT / "src" / "tailrace"
SOURCES = [path for path in MODULES if path.is_relative_to(PACKAGE)]


def _assert_none(found: list[str], what: str) -> None:
    """Fail with the whole list, which pytest would cut short."""
    if found:
        pytest.fail("\n  ".join([f"{len(found)} {what}:", *found]), pytrace=False)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


class _Facts(NamedTuple):
    """The facts about a module that rules need, so that each module is parsed once."""

    has_docstring: bool
    functions: tuple[tuple[str, int, int], ...]
    """Name, line and number of lines of each function."""
    skips: tuple[tuple[int, bool], ...]
    """The line of each mark that skips a test, and True if the mark has a reason."""
    classes: tuple[str, ...]
    """The names of the classes at the top level."""


@cache
def _facts(module: Path) -> _Facts:
    tree = ast.parse(module.read_text(), filename=str(module))
    functions = [
        (node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return _Facts(
        bool(ast.get_docstring(tree)), tuple(functions), tuple(_skip_marks(tree)), classes
    )


def _skip_marks(tree: ast.Module) -> Iterator[tuple[int, bool]]:
    reasoned = {
        id(call.func)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and any(word.arg == "reason" for word in call.keywords)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("skip", "skipif")
            and ast.unparse(node).startswith("pytest.mark.")
        ):
            yield node.lineno, id(node) in reasoned


def _requirements() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return {re.split(r"[\[<>=~! ;]", line, maxsplit=1)[0] for line in lines}


def test_functions_are_short() -> None:
    long = [
        f"{_name(module)}:{line} {name}"
        for module in MODULES
        for name, line, lines in _facts(module).functions
        if lines > FUNCTION_LINES_MAX
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


def test_packages_have_rooms() -> None:
    modules: defaultdict[Path, int] = defaultdict(int)
    for module in SOURCES:
        modules[module.parent] += module.name != "__init__.py"
    wide = [
        f"{_name(package)}: {count}"
        for package, count in modules.items()
        if count > PACKAGE_MODULES_MAX
        and package.relative_to(PACKAGE).as_posix() not in WIDE_PACKAGES
    ]
    _assert_none(wide, f"packages of more than {PACKAGE_MODULES_MAX} modules side by side")


def test_class_names_are_unique() -> None:
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for module in SOURCES:
        for name in _facts(module).classes:
            modules[name].append(_name(module))
    repeated = {name: where for name, where in modules.items() if len(where) > 1}
    found = [
        f"{name}: {', '.join(repeated[name])}"
        for name in repeated
        if name not in SHARED_CLASS_NAMES
    ]
    _assert_none(found, "class names in more than one module")
    _assert_none(
        sorted(SHARED_CLASS_NAMES - repeated.keys()),
        "class names to remove from SHARED_CLASS_NAMES",
    )


def test_shared_class_names_are_words_of_the_glossary() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = set(re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE))
    terms = {
        name: re.sub(r"\B([A-Z])", r" \1", name).lower().removesuffix("s")
        for name in SHARED_CLASS_NAMES
    }
    unknown = {name for name, term in terms.items() if term not in words}
    _assert_none(sorted(unknown), "class names to define in docs/glossary.md")


def test_unit_tests_mirror_the_source() -> None:
    tests = ROOT / "tests" / "unit"
    folders = {module.parent for module in MODULES if module.is_relative_to(tests)}
    lost = [_name(each) for each in folders if not (PACKAGE / each.relative_to(tests)).is_dir()]
    _assert_none(sorted(lost), "folders of unit tests without a package of that name")


def test_unit_tests_stand_beside_the_module_that_they_are_named_for() -> None:
    misplaced = []
    for module in (ROOT / "tests" / "unit").rglob("test_*.py"):
        name = module.stem.removeprefix("test_")
        mirrored = PACKAGE / module.parent.relative_to(ROOT / "tests" / "unit")
        inside = [_name(found) for found in mirrored.glob(f"*/**/{name}.py")]
        if inside and not any(mirrored.glob(f"{name}.py")) and not (mirrored / name).is_dir():
            misplaced.append(f"{_name(module)}: {', '.join(inside)}")
    _assert_none(sorted(misplaced), "unit tests of a module that is in a room of the package")


def test_every_module_has_a_docstring() -> None:
    silent = [_name(module) for module in MODULES if not _facts(module).has_docstring]
    _assert_none(silent, "modules without a docstring")


def test_every_skipped_test_says_why() -> None:
    silent = [
        f"{_name(module)}:{line}"
        for module in MODULES
        for line, has_reason in _facts(module).skips
        if not has_reason
    ]
    _assert_none(silent, "skipped without a reason")


@pytest.mark.parametrize(
    "pattern", [UNFINISHED, MACHINE_PATH], ids=["unfinished work", "paths of one machine"]
)
def test_nothing_unfinished_or_local_is_left_behind(pattern: re.Pattern[str]) -> None:
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


def test_every_make_target_has_a_help_text() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][\w-]*):(.*)$", makefile, re.MULTILINE)
    assert targets
    assert [name for name, rest in targets if not re.search(r" ## \S", rest)] == []


def test_the_changelog_has_this_version() -> None:
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
