"""A message as JSON shows it: everything readable, and nothing lost."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from tailrace.message import Message
from tailrace.payload import CONTENT_TYPE
from tailrace.topic.topic import Topic

_decode: Final = msgspec.json.Decoder().decode


class Form(StrEnum):
    """How a value is shown."""

    JSON = "json"
    TEXT = "text"
    BASE64 = "base64"

    @classmethod
    def of_content_type(cls, content_type: str) -> Form:
        """The form of values of a content type; what is neither JSON nor text is bytes."""
        media = content_type.partition(";")[0].strip().lower()
        if media == "application/json" or media.endswith("+json"):
            return cls.JSON
        return cls.TEXT if media.startswith("text/") else cls.BASE64


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message, made to be written as JSON.

    `form` says what `value` is: a document, text or base64. Bytes that are UTF-8 count as text.
    """

    id: str
    topic: str
    storage: int
    partition: int
    offset: int
    timestamp: datetime
    key: str | None
    headers: dict[str, str]
    form: Form
    value: Any


def view_message(topic: Topic[Any], message: Message[Any]) -> MessageView:
    """The message as JSON shows it."""
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
        key=message.key,
        headers={name: text_of(held) for name, held in message.headers.items()},
        form=form,
        value=value,
    )


def text_of(data: bytes) -> str:
    """Bytes as text; those that are not UTF-8 show as escapes."""
    return data.decode("utf-8", "backslashreplace")


def shown_value(data: bytes, form: Form) -> tuple[Form, Any]:
    """A value as JSON shows it, and the form that it has: the wanted one where it fits."""
    if form is Form.JSON:
        try:
            _decode(data)
            # The document's own words, on one line: numbers keep their digits.
            return form, msgspec.Raw(msgspec.json.format(data, indent=-1))
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # shown as what it is instead
    try:
        return Form.TEXT, data.decode()
    except UnicodeDecodeError:
        return Form.BASE64, base64.b64encode(data).decode()
