"""Conversion of values to bytes and back.

Bytes are stored as they are, text as UTF-8, everything else as JSON: msgspec structs, dataclasses,
typed dicts, lists, numbers; pydantic models by their own methods. A topic has one content type; a
message of another content type has a `content-type` header.

JSON has no NaN and no infinity: both are refused.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

import msgspec

from tailrace.errors import DecodeError, EncodeError, InvalidValue
from tailrace.message import Message
from tailrace.payload.agreement import is_open
from tailrace.payload.stored_check import checker, value_differences
from tailrace.payload.value_type import ValueType

T = TypeVar("T")

BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

CONTENT_TYPE: Final = "content-type"
"""The header of a message whose content type is not its topic's."""

ANY_TYPE: Final = "to push it anyway, open the topic with any_type=True"
"""The remedy for a value that is not of the type that its topic keeps."""

_PATH_DEPTH_MAX: Final = 32
_UNWRITTEN: Final = "nothing was written"
_to_json = msgspec.json.Encoder().encode


class _Codec(NamedTuple):
    """The encoder and decoder of one form. `check` raises for an encoding that may not be
    stored."""

    name: str
    content_type: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    check: Callable[[bytes], object] | None = None


_BYTES = _Codec("bytes", BYTES, bytes, bytes)
_TEXT = _Codec("UTF-8 text", TEXT, str.encode, bytes.decode)
_JSON = _Codec("JSON", JSON, _to_json, msgspec.json.Decoder().decode)


class Payload(Generic[T]):
    """The conversion of one topic's values to bytes and back.

    With a type, values must be of that type, and an encoding must decode as that type again;
    decoding uses the type only. Without one, each value is stored by its own kind and decoded as
    that kind: the header names it, or else the topic's content type, which is JSON by default.

    `stored` is the type that the topic keeps. A conversion without a type, or with an open one such
    as `dict`, checks each value against it. The attribute `read_stored` reads the type again,
    because it may have gained fields.
    """

    __slots__ = (
        "_accepted", "_check", "_codec", "_plain", "_stored", "content_type", "kind", "read_stored",
    )  # fmt: skip

    @overload
    def __init__(
        self: Payload[Any],
        kind: None = None,
        content_type: str | None = None,
        stored: ValueType | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self, kind: type[T], content_type: str | None = None, stored: ValueType | None = None
    ) -> None: ...
    def __init__(
        self, kind: Any = None, content_type: str | None = None, stored: ValueType | None = None
    ) -> None:
        """Prepare the conversion. `content_type` is that of an existing topic; without it, the type
        decides."""
        typed = kind is not None and kind is not Any and kind is not object
        self._codec = _codec_for(kind) if typed else None
        self._accepted = _accepted_classes(kind) if typed else (object,)
        self.kind = self._codec.name if self._codec else "untyped"
        self.content_type = content_type or (self._codec.content_type if self._codec else JSON)
        self._plain = _codec_named(self.content_type).content_type
        own = ValueType.of(kind)
        self._stored = stored if own is None or (is_open(own) and own != stored) else None
        self._check: Callable[[bytes], object] | None = None
        self.read_stored: Callable[[], ValueType | None] = lambda: stored

    def __repr__(self) -> str:
        return f"<Payload {self.kind}, {self.content_type}>"

    def encode(self, value: T, where: str) -> tuple[bytes, str | None]:
        """Return the bytes of a value, and its content type if it is not the topic's.

        `where` names the topic in the `EncodeError` of a value that is null, of another type, or
        has a part that cannot be encoded.
        """
        if value is None:
            valid = self.kind if self._codec else "bytes, str, or a JSON value"
            raise EncodeError(f"a null payload for {where}", f"valid: {valid}", _UNWRITTEN)
        if not isinstance(value, self._accepted):
            found = type(value).__name__
            raise EncodeError(f"{where} takes {self.kind}, not {found}", _UNWRITTEN)
        codec = self._codec or _codec_of(value)
        if self._stored is not None and codec.content_type != self._plain:
            found = type(value).__name__
            raise EncodeError(f"{where} takes {self._stored.text}, not {found}", _UNWRITTEN)
        try:
            data = codec.encode(value)
        except Exception as error:  # Of any kind, because models run code of their own.
            problem = f"{type(value).__name__} does not encode: {_first_unencodable(value, error)}"
            raise EncodeError(f"{where}: {problem}", _UNWRITTEN) from error
        if codec.check is not None:
            try:
                codec.check(data)
            except Exception as error:
                problem = f"takes {self.kind}, but this value would not decode: {_reason(error)}"
                raise EncodeError(f"{where} {problem}", _UNWRITTEN) from error
        elif codec is _JSON and b"null" in data and not _all_finite(msgspec.to_builtins(value)):
            problem = "JSON has no NaN and no infinity; use text or omit them"
            raise EncodeError(f"{where}: {problem}", _UNWRITTEN)
        if self._stored is not None:
            self._check_stored(self._stored, data, where)
        return data, None if codec.content_type == self._plain else codec.content_type

    def _check_stored(self, stored: ValueType, data: bytes, where: str) -> None:
        """Raise `EncodeError` with the differences if data is not of the topic's stored type."""
        if self._plain != JSON:  # text and bytes have no parts
            return
        if self._check is None:
            self._check = checker(stored)
        try:
            self._check(data)
        except msgspec.MsgspecError as error:
            newest = self.read_stored()
            if newest is not None and newest != stored:
                self._stored, self._check = newest, None
                self._check_stored(newest, data, where)
                return
            raise EncodeError(
                f"{where} takes {stored.text}: {value_differences(stored, data, _reason(error))}",
                ANY_TYPE,
                _UNWRITTEN,
            ) from error

    def encode_many(
        self, values: Sequence[T], where: str
    ) -> tuple[list[bytes], list[str | None] | None]:
        """Return `encode` of each value; None for the content types if none differs from the
        topic's."""
        if self._plain == BYTES and self._codec in (None, _BYTES):
            raw: list[Any] = list(values)
            if set(map(type, raw)) <= {bytes}:
                return raw, None
        quickly = self._encode_alike(values)
        if quickly is not None:
            return quickly, None
        encoded = []
        for index, value in enumerate(values):
            try:
                encoded.append(self.encode(value, where))
            except EncodeError as error:
                raise EncodeError(f"message {index} of {len(values)}: {error}") from error.__cause__
        kinds = [content_type for _, content_type in encoded]
        return [data for data, _ in encoded], kinds if any(kinds) else None

    def _encode_alike(self, values: Sequence[T]) -> list[bytes] | None:
        """Return `encode` of values that are all valid; None if one is not, or has a header.

        It takes half the time of `encode` one by one, which finds the error.
        """
        codec = self._codec
        kinds = set(map(type, values))
        if codec is None or codec.content_type != self._plain or types.NoneType in kinds:
            return None
        if self._stored is not None:
            return None
        if not all(issubclass(kind, self._accepted) for kind in kinds):
            return None
        try:
            encoded = list(map(codec.encode, values))
            if codec.check is not None:
                deque(map(codec.check, encoded), maxlen=0)
        except Exception:  # Of any kind, because models run code of their own.
            return None
        return encoded

    def decode(self, data: bytes, where: str, content_type: str | None = None) -> T:
        """Return the value of a payload; `content_type` is the message's own, if it has one.

        `DecodeError` names `where` (the position), the type, and the reason with its place.
        """
        codec = self._codec or _codec_named(content_type or self.content_type)
        try:
            value: T = codec.decode(data)
        except Exception as error:
            raise DecodeError(where, codec.name, _reason(error)) from error
        return value

    def decode_message(self, message: Message[T]) -> T:
        """Decode for a `Message`, which calls this on the first use of its value."""
        codec = self._codec
        if codec is None:
            header = message.headers.get(CONTENT_TYPE)
            content_type = None if header is None else header.decode("ascii", "replace")
            codec = _codec_named(content_type or self.content_type)
        try:
            value: T = codec.decode(message.data)
        except Exception as error:
            raise DecodeError(message.id, codec.name, _reason(error)) from error
        return value


def _codec_for(kind: Any) -> _Codec:
    if kind is bytes:
        return _BYTES
    if kind is str:
        return _Codec("str", TEXT, str.encode, bytes.decode)
    name = kind.__name__ if isinstance(kind, type) else repr(kind).replace("typing.", "")
    if hasattr(kind, "model_validate_json"):
        decode = kind.model_validate_json
        return _Codec(name, JSON, _pydantic_json, decode, decode)
    try:
        decode = msgspec.json.Decoder(kind).decode
        return _Codec(name, JSON, _to_json, decode, decode)
    except (TypeError, ValueError, NameError) as error:
        raise InvalidValue(
            "payload type", kind, "a type that msgspec can decode", str(error)
        ) from error


def _codec_of(value: object) -> _Codec:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _BYTES
    if isinstance(value, str):
        return _TEXT
    if hasattr(value, "model_dump_json"):
        return _Codec(type(value).__name__, JSON, _pydantic_json, _JSON.decode)
    return _JSON


def is_json(content_type: str) -> bool:
    """True if values of a content type are JSON."""
    return _codec_named(content_type) is _JSON


@lru_cache(maxsize=256)
def _codec_named(content_type: str) -> _Codec:
    media = content_type.partition(";")[0].strip().lower()
    if media == JSON or media.endswith("+json"):
        return _JSON
    return _TEXT if media.startswith("text/") else _BYTES


def _pydantic_json(value: Any) -> bytes:
    text: str = value.model_dump_json()
    return text.encode()


def _accepted_classes(kind: Any) -> tuple[type, ...]:
    """Return the classes a value of an annotation may have; `object` if only decoding can check."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _accepted_classes(kind.__origin__)
    if origin in (typing.Union, types.UnionType):
        return tuple(c for part in typing.get_args(kind) for c in _accepted_classes(part))
    if typing.is_typeddict(origin or kind):
        return (dict,)
    if kind is bytes:
        return (bytes, bytearray, memoryview)
    if kind is float:
        return (float, int)
    found = origin or kind
    return (found,) if isinstance(found, type) else (object,)


def _reason(error: Exception) -> str:
    """Return the text of an error, without the input that pydantic would print."""
    details = getattr(error, "errors", None)
    if not callable(details):
        return str(error) or type(error).__name__
    first = details()[0]
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
    return f"{first['msg']} - at `${path}`" if path else str(first["msg"])


def _first_unencodable(value: object, error: Exception) -> str:
    """Return why encoding fails, and where in the value it fails first."""
    path = ""
    for _ in range(_PATH_DEPTH_MAX):
        for step, child in _children(value):
            try:
                _to_json(child)
            except Exception as deeper:
                value, error, path = child, deeper, path + step
                break
        else:
            break
    return f"{_reason(error)} - at `${path}`" if path else _reason(error)


def _children(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield f".{key}", child
    elif isinstance(value, (list, tuple, Set)):
        for index, child in enumerate(value):
            yield f"[{index}]", child
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f".{name}", getattr(value, name)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name)


def _all_finite(value: Any) -> bool:
    """True if no number in plain values is NaN or infinite."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    return all(map(_all_finite, value)) if isinstance(value, list) else True
