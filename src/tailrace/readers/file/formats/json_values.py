"""Values and identities of rows as JSON, the same for every format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


def json_float(number: float) -> float | str:
    """Return a number, or the name of one that JSON cannot write: NaN, Infinity, -Infinity."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def identity_error(document: Mapping[str, Any], identity: Sequence[str]) -> str:
    """Return which identity fields a document lacks, as an error; empty if it has them all."""
    missing = [name for name in identity if name not in document]
    return f"the row has no {', '.join(missing)}, part of its identity" if missing else ""


def encode_identity(document: Mapping[str, Any], identity: Sequence[str]) -> bytes:
    """Return the values of a document's identity fields as a JSON array.

    Raises `ValueError` if the document lacks one of the fields.
    """
    try:
        return _encode([document[name] for name in identity])
    except KeyError:
        raise ValueError(identity_error(document, identity)) from None
