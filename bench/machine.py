"""The machine of a run: the facts that matter to speed, without host names and paths."""

from __future__ import annotations

import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import apsw
import numpy as np
import pyarrow as pa

import tailrace


def facts() -> list[str]:
    """Return facts about the machine and versions, one a line."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    load, _, _ = os.getloadavg()
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Tailrace {tailrace.__version__}",
        f"{os.cpu_count()} cores, {memory_bytes / 2**30:.1f} GiB, "
        f"{platform.system()} {platform.release().split('-')[0]}, "
        f"{file_system(Path(tempfile.gettempdir()))}; load {load:.1f} when it began",
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"pyarrow {pa.__version__}, numpy {np.__version__}, SQLite {apsw.sqlite_lib_version()}",
    ]


def file_system(path: Path) -> str:
    """Return the file system type of a path, by the longest mount point above it."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split(" ")
        inside = path.resolve().is_relative_to(mount)
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
