"""What a source or a pipeline can read: ``readers.file("in/*.jsonl")``.

Other packages add readers by the entry point group ``tailrace.readers``.
"""

from __future__ import annotations

from tailrace.readers.file import FileReader

__all__ = ["FileReader", "file"]

file = FileReader
