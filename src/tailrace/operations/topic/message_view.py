"""Messages for JSON output: readable where possible, and nothing lost."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from tailrace.hub.topic import Topic
from tailrace.message import MODE_NAMES, OP_NAMES, Message
from tailrace.payload import CONTENT_TYPE

_decode: Final = msgspec.json.Decoder().decode


class Form(StrEnum):
    """The form in which a value is shown."""

    JSON = "json"
    TEXT = "text"
    BASE64 = "base64"

    @classmethod
    def of_content_type(cls, content_type: str) -> Form:
        """Return the form of a content type: base64 if it is neither JSON nor text."""
        media = content_type.partition(";")[0].strip().lower()
        if media == "application/json" or media.endswith("+json"):
            return cls.JSON
        return cls.TEXT if media.startswith("text/") else cls.BASE64


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message for JSON output.

    `form` is the form of `value`: a document, text or base64. Bytes that are UTF-8 are text.
    `origin` is the position that a redelivered dead letter had at first; None for other messages.
    """

    id: str
    topic: str
    storage: int
    partition: int
    offset: int
    timestamp: datetime
    op: str
    mode: str
    key: str | None
    headers: dict[str, str]
    origin: str | None
    form: Form
    value: Any


def view_message(topic: Topic[Any], message: Message[Any]) -> MessageView:
    """Return a message for JSON output."""
    own = message.headers.get(CONTENT_TYPE)
    content_type = topic.view.definition.content_type if own is None else text_of(own)
    form, value = shown_value(message.data, Form.of_content_type(content_type))
    return MessageView(
        id=message.id,
        topic=message.topic,
        storage=message.storage,
        partition=message.partition,
        offset=message.offset,
        timestamp=message.timestamp,
        op=OP_NAMES[message.op],
        mode=MODE_NAMES[message.mode],
        key=message.key,
        headers={name: text_of(held) for name, held in message.headers.items()},
        origin=message.origin,
        form=form,
        value=value,
    )


def text_of(data: bytes) -> str:
    """Return bytes as text. Bytes that are not UTF-8 become escapes."""
    return data.decode("utf-8", "backslashreplace")


def shown_value(data: bytes, form: Form) -> tuple[Form, Any]:
    """Return a value for JSON output and its form: the given form if the value is valid in it."""
    if form is Form.JSON:
        try:
            _decode(data)
            # The original text on one line, so that numbers keep their digits.
            return form, msgspec.Raw(msgspec.json.format(data, indent=-1))
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # shown as text or base64 instead
    try:
        return Form.TEXT, data.decode()
    except UnicodeDecodeError:
        return Form.BASE64, base64.b64encode(data).decode()
