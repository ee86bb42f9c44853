"""Signatures of deliveries, as Standard Webhooks defines them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

VERSION: Final = "v1"


def signature_headers(
    keys: Sequence[bytes], id: str, timestamp_s: int, body: bytes
) -> list[tuple[str, str]]:
    """Return the headers that sign a delivery with each of the keys."""
    signed = b"%s.%d.%s" % (id.encode(), timestamp_s, body)
    signatures = (
        f"{VERSION},{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"
        for key in keys
    )
    return [
        ("webhook-id", id),
        ("webhook-timestamp", str(timestamp_s)),
        ("webhook-signature", " ".join(signatures)),
    ]
