"""Secrets are checked, read from files again, and never shown."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tailrace import InvalidValue
from tailrace.subscription.endpoint.secret import (
    check_secret,
    parse_keys,
    read_keys,
    shown_secret,
)
from tailrace.subscription.endpoint.signature import signature_headers
from tailrace.subscription.endpoint.signing_keys import READ_AGAIN_S, SigningKeys

KEY, NEXT = b"k" * 24, b"n" * 64
SECRET, NEXT_SECRET = (f"whsec_{base64.b64encode(key).decode()}" for key in (KEY, NEXT))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (SECRET, (KEY,)),
        (NEXT_SECRET.rstrip("="), (NEXT,)),
        (f"{SECRET} {NEXT_SECRET}", (KEY, NEXT)),
        (f"\n{SECRET},\n{NEXT_SECRET}\n", (KEY, NEXT)),
    ],
)
def test_a_secret_is_one_or_several_keys(text: str, keys: tuple[bytes, ...]) -> None:
    assert parse_keys(text) == keys


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hunter2hunter2", "does not begin with whsec_"),
        ("whsec_not*base64", "not base64"),
        ("whsec_" + base64.b64encode(b"hunter2").decode(), "has 7 bytes"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "has 65 bytes"),
        ("", "has 0 secrets"),
        (" ".join([SECRET] * 5), "has 5 secrets"),
        ("file:", "names no file"),
    ],
)
def test_a_secret_that_is_not_valid_is_an_error_that_does_not_show_it(
    text: str, reason: str
) -> None:
    with pytest.raises(InvalidValue, match=reason) as raised:
        check_secret(text)
    for part in text.split():
        assert part == "file:" or part not in f"{raised.value}{raised.value.value}"


def test_what_is_shown_of_a_secret_tells_two_apart_and_not_what_they_are() -> None:
    shown = shown_secret(SECRET)
    assert shown is not None
    assert SECRET.removeprefix("whsec_") not in shown
    assert shown != shown_secret(NEXT_SECRET)
    assert shown_secret("file:/run/secrets/crm") == "file:/run/secrets/crm"


def test_a_file_of_secrets_is_read(tmp_path: Path) -> None:
    (tmp_path / "crm").write_text(f"{SECRET}\n{NEXT_SECRET}\n")
    assert read_keys(f"file:{tmp_path}/crm") == (KEY, NEXT)


@pytest.mark.parametrize("content", [None, b"", b"hunter2hunter2", b"\xff"])
def test_a_file_that_has_no_secret_is_an_error_that_names_it(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "crm"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidValue, match=str(path)) as raised:
        read_keys(f"file:{path}")
    assert "hunter2" not in str(raised.value)


def test_a_changed_file_is_used_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = tmp_path / "crm", [0.0]
    path.write_text(SECRET)
    keys = SigningKeys(f"file:{path}", lambda: now[0])
    path.write_text(f"{NEXT_SECRET} {SECRET}")
    assert keys.current() == (KEY,)
    now[0] += READ_AGAIN_S
    assert keys.current() == (NEXT, KEY)
    path.unlink()
    now[0] += READ_AGAIN_S
    with caplog.at_level(logging.ERROR):
        assert keys.current() == (NEXT, KEY)
    assert "is still used" in caplog.text


def test_a_file_that_is_written_later_is_used_without_a_restart(tmp_path: Path) -> None:
    path, now = tmp_path / "crm", [0.0]
    keys = SigningKeys(f"file:{path}", lambda: now[0])
    with pytest.raises(InvalidValue, match="cannot be read"):
        keys.current()
    path.write_text(SECRET)
    now[0] += READ_AGAIN_S
    assert keys.current() == (KEY,)


@pytest.mark.parametrize("secret", [SECRET, NEXT_SECRET])
def test_each_key_of_a_rotation_verifies_the_signature(secret: str) -> None:
    import time

    body = '{"id": 1, "name": "Zoë"}'.encode()
    headers = dict(signature_headers((KEY, NEXT), "orders/1.7@42", int(time.time()), body))
    assert Webhook(secret).verify(body, headers) == {"id": 1, "name": "Zoë"}
