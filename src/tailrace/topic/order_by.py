"""The order of a topic by a header or by a field of its values: what the key of a message is.

``header:country`` is a header. ``customer.id`` is the path of a field in values that are JSON
objects. Text is the key as it is; a number, true and false are the key as they are written in JSON.
The key is stored with the message, so consumers, routers and filters see no difference from a key
that was pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from tailrace.errors import InvalidValue
from tailrace.log.control import control_mask
from tailrace.message import Op
from tailrace.payload.value_type import ValueType, node_text, resolved
from tailrace.suggestion import did_you_mean
from tailrace.topic.reserved_headers import check_header_name

FORM: Final = "header:NAME, or the path of a field such as customer.id"
LENGTH_MAX: Final = 1000
"""The most characters."""

_HEADER: Final = "header:"
_SCALARS: Final = "text, a number, true or false"
_DELETE: Final = int(Op.DELETE)
_decode_text = msgspec.json.Decoder(str).decode


class OrderBy:
    """What a topic is ordered by. `text` is as it was written."""

    __slots__ = ("_field", "_header", "path", "text")

    def __init__(self, text: str) -> None:
        """Parse the text; `InvalidValue` shows the form."""
        given: object = text
        if not isinstance(given, str) or len(given) > LENGTH_MAX:
            raise InvalidValue("order_by", given, FORM)
        self.text = text
        self._header = text.removeprefix(_HEADER) if text.startswith(_HEADER) else None
        self.path = () if self._header is not None else tuple(text.split("."))
        """The names of a path; empty for a header."""
        if not (self._header or (self.path and all(self.path))):
            raise InvalidValue("order_by", text, FORM)
        if self._header is not None:
            check_header_name(self._header)
        self._field = _field_decoder(self.path)

    def __repr__(self) -> str:
        return f"<OrderBy {self.text}>"

    def key(self, data: bytes, headers: Mapping[str, bytes] | None) -> bytes:
        """Return the key of a message; `InvalidValue` says what it lacks."""
        if self._header is not None:
            found = (headers or {}).get(self._header)
            if not found:
                what = "empty" if found is not None else "missing"
                valid = f"headers={{{self._header!r}: ...}}, which push_many does not have"
                raise self._refused(f"the header {self._header!r} is {what}", valid)
            return found
        try:
            raw = self._field(data)
        except msgspec.ValidationError as error:
            raise self._refused(str(error), self._valid) from None
        except msgspec.DecodeError as error:
            raise self._refused(f"the value is not JSON: {error}", self._valid) from None
        return self._scalar(raw)

    def _scalar(self, raw: bytes) -> bytes:
        first = raw[:1]
        if first == b'"':
            try:
                found = _decode_text(raw).encode()
            except (msgspec.DecodeError, UnicodeError) as error:
                raise self._refused(f"the value is not JSON: {error}", self._valid) from None
            if found:
                return found
        elif first not in b"{[n":
            return raw
        kinds = {b'"': "empty", b"{": "an object", b"[": "an array", b"n": "null"}
        raise self._refused(f"the field is {kinds[first]}", self._valid)

    @property
    def _valid(self) -> str:
        hint = f"; for a header, {_HEADER}{self.path[-1]}" if self.path[0] == "header" else ""
        return f"a JSON object in which {self.text} is {_SCALARS}{hint}"

    def _refused(self, reason: str, valid: str) -> InvalidValue:
        problem = f"the topic is ordered by {self.text}: {reason}"
        return InvalidValue("message", self.text, valid, problem=problem)

    def chosen(
        self, given: bytes | None, data: bytes, headers: Mapping[str, bytes] | None
    ) -> bytes:
        """Return the key of a message that was pushed with a key, or with none.

        `InvalidValue` if they differ.
        """
        found = self.key(data, headers)
        if given and given != found:
            raise InvalidValue(
                "key",
                given,
                f"no key, or {_shown(found)}",
                problem=f"the topic is ordered by {self.text}, which is {_shown(found)}, and the"
                f" key is {_shown(given)}",
            )
        return found

    def with_keys(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return records with their keys. `InvalidValue` names the first row that has none.

        Control records, and deletions without a value, keep the key that they have.
        """
        controls = control_mask(records).tolist()
        given: list[Any] = records["key"].to_pylist()
        headers: list[Any] = records["headers"].to_pylist()
        deletions = (records["op"].to_numpy() == _DELETE).tolist()
        values: list[Any] = records["value"].to_pylist()
        keys = []
        for row, data in enumerate(values):
            if controls[row] or (deletions[row] and not data and given[row]):
                keys.append(given[row])
                continue
            try:
                keys.append(self.chosen(given[row], data, dict(headers[row] or ())))
            except InvalidValue as error:
                raise at_place(error, f"row {row}") from None
        index = records.schema.get_field_index("key")
        return records.set_column(index, records.schema.field(index), pa.array(keys, pa.binary()))

    def check_type(self, value_type: ValueType | None) -> None:
        """Raise `InvalidValue` if values of a type cannot have the field."""
        if value_type is None or self._header is not None:
            return
        schema, node = value_type.schema, value_type.node
        for at, name in enumerate(self.path):
            where = f"{value_type.name}{''.join(f'.{each}' for each in self.path[:at])}"
            if "properties" not in node:
                if node.get("type", "object") != "object" or "enum" in node:
                    problem = f"{where} is {node_text(schema, node)}, which has no fields"
                    raise InvalidValue("order_by", self.text, FORM, problem=problem)
                return
            fields = node["properties"]
            if name not in fields:
                problem = f"{where} has no field {name!r}"
                valid = f"one of {', '.join(fields)}"
                raise InvalidValue(
                    "order_by", self.text, valid, did_you_mean(name, fields), problem
                )
            node = resolved(schema, fields[name])
        if "properties" in node or node.get("type") in ("object", "array"):
            problem = f"{self.text} of {value_type.name} is {node_text(schema, node)}"
            raise InvalidValue(
                "order_by", self.text, f"a field that is {_SCALARS}", problem=problem
            )


def at_place(error: InvalidValue, place: str) -> InvalidValue:
    """Return the error with the place of the message among others."""
    found = InvalidValue(error.what, error.value, error.valid, error.remedy)
    found.args = (f"{place}: {error}",)
    return found


def _shown(key: bytes) -> str:
    return repr(key.decode("utf-8", "backslashreplace"))


def _field_decoder(path: tuple[str, ...]) -> Callable[[bytes], bytes]:
    """Return a function that returns the JSON of a field. The other fields are not decoded."""
    kind: Any = msgspec.Raw
    for name in reversed(path):
        kind = msgspec.defstruct("Field", [("field", kind)], rename={"field": name})
    decode, depth = msgspec.json.Decoder(kind).decode, len(path)

    def field(data: bytes) -> bytes:
        found = decode(data)
        for _ in range(depth):
            found = found.field
        return bytes(found)

    return field
