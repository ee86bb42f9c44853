"""Third-party packages, installed as an installer leaves them: modules and their metadata."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import pytest

ACME = Path(__file__).parent / "acme"
CATALOG = Path(__file__).parent / "catalog"
"""Modules that the page on plug-ins shows; not a package."""


def install(project: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a project of single modules into a directory on the path of this process."""
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name, version = described["name"], described["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in described["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    for module in project.glob("*.py"):
        shutil.copy(module, site)
        monkeypatch.delitem(sys.modules, module.stem, raising=False)
    monkeypatch.syspath_prepend(site)


def make_project(directory: Path, name: str, entry_points: str, module: str) -> Path:
    """Create a project with one module `NAME_plugin` and these entry points, in TOML."""
    directory.mkdir()
    (directory / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "0.1"\n[project.entry-points]\n{entry_points}\n'
    )
    (directory / f"{name}_plugin.py").write_text(module)
    return directory
