"""What the name of a file says of it: its format, its compression, the namespace of its rows."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from tailrace.errors import InvalidValue

_FORMATS: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_COMPRESSIONS: Final = {".gz": "gzip"}


def format_of(path: str) -> str:
    """The format that a file's name says; `InvalidValue` when it says none."""
    suffix = PurePath(_uncompressed(path)).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidValue(
            f"the format of {path!r}",
            suffix,
            f"a name that ends in {', '.join(_FORMATS)}, each also with .gz",
            "or say it: format = jsonl, csv or parquet",
        )
    return _FORMATS[suffix]


def compression_of(path: str) -> str:
    """The compression that a file's name says."""
    return _COMPRESSIONS.get(PurePath(path).suffix.lower(), "none")


def namespace_of(path: str) -> str:
    """The name of a file without what says its format and compression."""
    return PurePath(_uncompressed(path)).stem


def _uncompressed(path: str) -> str:
    return path[: -len(PurePath(path).suffix)] if compression_of(path) != "none" else path
