"""The cache directory of Tailrace. It is safe to delete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return ``$XDG_CACHE_HOME/tailrace`` or ``~/.cache/tailrace``; it may not exist yet."""
    home = environment.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tailrace"


def write_atomically(path: Path, text: str, mode: int) -> None:
    """Write a file completely or not at all, even if other processes write it too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(part).chmod(mode)
    Path(part).rename(path)
