"""The secrets that sign deliveries: where they are, and how they are shown. They are never shown
themselves.

A secret is text such as ``whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw``, as Standard Webhooks has it;
several, separated by spaces or commas, sign together while one replaces the other. ``file:PATH``
names a file that has them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from pathlib import Path
from typing import Final

from tailrace.errors import InvalidValue

PREFIX: Final = "whsec_"
FILE: Final = "file:"
BYTES_MIN: Final = 24
BYTES_MAX: Final = 64
SECRETS_MAX: Final = 4
_FILE_BYTES_MAX: Final = 10_000
_FINGERPRINT_CHARACTERS: Final = 8

_VALID: Final = (
    f"{PREFIX} and the base64 of {BYTES_MIN} to {BYTES_MAX} bytes, up to {SECRETS_MAX} of them,"
    f" separated by spaces or commas; or {FILE}PATH"
)
_REMEDY: Final = (
    'make one: python3 -c "import base64, secrets;'
    f" print('{PREFIX}' + base64.b64encode(secrets.token_bytes(32)).decode())\""
)
_SEPARATORS: Final = re.compile(r"[\s,]+")


def check_secret(secret: object) -> str:
    """Return a secret to store, or the reference to its file, which need not exist here.

    `InvalidValue`, which does not show the secret, for other text.
    """
    if not isinstance(secret, str):
        raise _invalid("it is not text")
    if secret.startswith(FILE):
        if not secret.removeprefix(FILE).strip() or "\0" in secret:
            raise _invalid("it names no file")
        return secret
    parse_keys(secret)
    return secret


def shown_secret(secret: str | None) -> str | None:
    """Return what people see of a secret: the file, or the beginning of its SHA-256."""
    if secret is None or secret.startswith(FILE):
        return secret
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return f"{PREFIX}… (SHA-256 {digest[:_FINGERPRINT_CHARACTERS]}…)"


def read_keys(secret: str) -> tuple[bytes, ...]:
    """Return the keys of a secret; read its file, if it has one.

    `InvalidValue` if the file cannot be read, or has no valid secret.
    """
    if not secret.startswith(FILE):
        return parse_keys(secret)
    path = Path(secret.removeprefix(FILE).strip())
    where = f"{FILE}{path}"
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        problem = f"the secret {where} cannot be read: {reason}"
        remedy = f"paths are relative to the directory of the worker, {Path.cwd()}"
        raise InvalidValue("secret", where, "", remedy, problem=problem) from None
    try:
        return parse_keys(content.decode("ascii"), where)
    except UnicodeDecodeError:
        raise _invalid("it is not ASCII", where) from None


def parse_keys(text: str, where: str = "") -> tuple[bytes, ...]:
    """Return the keys of one or several secrets. `where` names them in errors."""
    found = [each for each in _SEPARATORS.split(text) if each]
    if not 1 <= len(found) <= SECRETS_MAX:
        raise _invalid(f"it has {len(found)} secrets", where)
    return tuple(_key(each, where) for each in found)


def _key(secret: str, where: str) -> bytes:
    if not secret.startswith(PREFIX):
        raise _invalid(f"it does not begin with {PREFIX}", where)
    encoded = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _invalid("it is not base64", where) from None
    if not BYTES_MIN <= len(key) <= BYTES_MAX:
        raise _invalid(f"it has {len(key)} bytes", where)
    return key


def _invalid(reason: str, where: str = "") -> InvalidValue:
    named = f"the secret {where}" if where else "the secret"
    return InvalidValue("secret", "…", _VALID, _REMEDY, problem=f"{named} is not valid: {reason}")
