"""Build the jar of the native reader from its source: ``make jar``.

Equal sources give equal bytes: entries are sorted and have a fixed time. The manifest has the hash
of the sources, by which a test without a compiler finds a jar that is not theirs.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "java" / "tailrace"
JAR: Final = ROOT / "src" / "tailrace" / "spark" / "frames" / "tailrace-spark.jar"
RELEASE: Final = "17"
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def source_files() -> list[Path]:
    """Return the sources, sorted."""
    return sorted(SOURCES.rglob("*.java"))


def source_hash() -> str:
    """Return the hash of names and contents of the sources."""
    digest = hashlib.sha256()
    for path in source_files():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCES.parent).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def compiler_version(javac: str = "javac") -> str:
    """Return the version of a compiler: other versions may make other classes."""
    answer = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True)
    return (answer.stdout + answer.stderr).strip()


def manifest(compiler: str) -> bytes:
    """Return the manifest of a jar. Its lines have at most 72 bytes, so the hash is cut."""
    lines = ("Manifest-Version: 1.0", f"Created-By: {compiler}", f"Source: {source_hash()[:60]}")
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def compile_classes(directory: Path, javac: str = "javac") -> dict[str, bytes]:
    """Compile the sources against the jars of the installed pyspark; return the classes by path."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    options = ["-Xlint:all,-path,-classfile", "-Werror", "-proc:none", "-g:source,lines"]
    where = ["--release", RELEASE, "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(directory)]
    subprocess.run([javac, *options, *where, *map(str, source_files())], check=True)
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*.class"))
    }


def write_jar(path: Path, classes: Mapping[str, bytes], compiler: str) -> None:
    """Write a jar, the same bytes for the same classes and sources."""
    entries = {"META-INF/MANIFEST.MF": manifest(compiler), **classes}
    with zipfile.ZipFile(path, "w") as jar:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, entries[name])


def main() -> int:
    """Build the jar in its place."""
    with tempfile.TemporaryDirectory() as directory:
        write_jar(JAR, compile_classes(Path(directory)), compiler_version())
    print(f"{JAR.relative_to(ROOT)}: {JAR.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
