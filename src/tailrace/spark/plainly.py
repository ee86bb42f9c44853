"""Errors of ours as Spark shows them: one sentence, not the frames it came through."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.errors import Error

_SENTENCE: Final = re.compile(r"\btailrace\.errors\.\w+: (.*)")


@contextmanager
def plainly() -> Iterator[None]:
    """In a Python process of Spark's: let Spark pass on an error of ours without its traceback.

    Such a process ends with the first error, so nobody else's traceback is missed.
    """
    try:
        yield
    except Error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def sentence_of(error: BaseException) -> str | None:
    """What we said, if this error of Spark's came from us."""
    match = _SENTENCE.search(str(error))
    return None if match is None else match[1].strip()
