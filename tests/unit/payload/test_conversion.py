"""Values to bytes and back: the types that each topic accepts, returns and refuses."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DecodeError, EncodeError, InvalidValue
from tailrace.message import Message, Mode, Op
from tailrace.payload import BYTES, CONTENT_TYPE, JSON, TEXT, Payload


class Order(msgspec.Struct):
    id: int
    customer: str
    total: float


@dataclass
class Line:
    order: Order
    count: int


class Address(TypedDict):
    street: str
    number: int


MISFIT = Order("x", "c", 0)  # type: ignore[arg-type]


class ModelError(ValueError):
    """What pydantic raises, as far as Tailrace looks at it."""

    def errors(self) -> list[dict[str, Any]]:
        return [{"loc": ("items", 2, "price"), "msg": "Input should be a valid number"}]


class Model:
    """A class with pydantic's two methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    def model_dump_json(self) -> str:
        return json.dumps({"name": self.name})

    @classmethod
    def model_validate_json(cls, data: bytes) -> Model:
        fields = json.loads(data)
        if not isinstance(fields, dict) or "name" not in fields:
            raise ModelError(f"all of the input: {data!r}")
        return cls(fields["name"])


def message(
    payload: Payload[Any], data: bytes, headers: dict[str, bytes] | None = None
) -> Message[Any]:
    return Message(
        "orders", 1, 7, 42, 0, Mode.COPY, Op.INSERT, None, headers or {}, data,
        payload.decode_message,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "content_type", "data"),
    [
        (bytes, b"\x00raw", BYTES, b"\x00raw"),
        (str, "grün", TEXT, "grün".encode()),
        (int, 7, JSON, b"7"),
        (dict, {"a": [1, None]}, JSON, b'{"a":[1,null]}'),
        (list[int], [1, 2], JSON, b"[1,2]"),
        (Order, Order(1, "c7", 9.5), JSON, b'{"id":1,"customer":"c7","total":9.5}'),
        (Address, {"street": "Elm", "number": 4}, JSON, b'{"street":"Elm","number":4}'),
        (Annotated[int, msgspec.Meta(gt=0)], 3, JSON, b"3"),
        (int | str, "x", JSON, b'"x"'),
        (Literal["on", "off"], "on", JSON, b'"on"'),
    ],
)
def test_a_typed_value_comes_back_as_it_was(
    kind: Any, value: object, content_type: str, data: bytes
) -> None:
    payload = Payload[Any](kind)
    assert payload.content_type == content_type
    assert payload.encode(value, "orders") == (data, None)
    assert payload.decode(data, "orders/0.0@0") == value


def test_dataclasses_come_back_as_they_were() -> None:
    line = Line(Order(1, "c7", 9.5), 3)
    payload = Payload(Line)
    assert payload.decode(payload.encode(line, "lines")[0], "lines/0.0@0") == line


def test_models_use_their_own_json() -> None:
    payload = Payload(Model)
    data, header = payload.encode(Model("ada"), "people")
    assert (data, header) == (b'{"name": "ada"}', None)
    assert payload.decode(data, "people/0.0@0").name == "ada"
    assert Payload().encode(Model("ada"), "people") == (data, None)


def test_a_value_that_a_model_refuses_is_named_without_its_content() -> None:
    with pytest.raises(DecodeError) as caught:
        Payload(Model).decode(b"{}", "people/0.0@3")
    assert caught.value.where == "people/0.0@3"
    assert caught.value.kind == "Model"
    assert caught.value.reason == "Input should be a valid number - at `$.items[2].price`"


@pytest.mark.parametrize("value", [bytearray(b"abc"), memoryview(b"abc"), b"abc"])
def test_anything_like_bytes_is_stored_as_bytes(value: Any) -> None:
    assert Payload(bytes).encode(value, "raw") == (b"abc", None)
    assert Payload().encode(value, "raw") == (b"abc", BYTES)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
).filter(lambda value: value is not None)


@given(st.binary() | json_values, st.sampled_from([None, BYTES, TEXT, JSON, "image/png"]))
def test_an_untyped_topic_returns_the_type_that_was_pushed(
    value: object, content_type: str | None
) -> None:
    payload = Payload(None, content_type)
    data, header = payload.encode(value, "orders")
    headers = {} if header is None else {CONTENT_TYPE: header.encode()}
    assert message(payload, data, headers).value == value


@pytest.mark.parametrize(
    ("content_type", "plain"),
    [
        (None, {"a": 1}),
        ("application/vnd.order+json", {"a": 1}),
        ("application/json; charset=utf-8", [1]),
        ("text/csv", "a,b"),
        ("image/png", b"\x89PNG"),
    ],
)
def test_a_message_of_the_topics_own_content_type_carries_no_header(
    content_type: str | None, plain: object
) -> None:
    payload = Payload(None, content_type)
    data, header = payload.encode(plain, "orders")
    assert header is None
    assert message(payload, data).value == plain


def test_a_typed_view_of_a_topic_of_another_content_type_adds_the_header() -> None:
    assert Payload(Order, BYTES).encode(Order(1, "c", 0), "orders")[1] == JSON
    assert Payload(bytes, JSON).encode(b"x", "orders")[1] == BYTES


def test_a_topic_read_as_bytes_returns_every_message_undecoded() -> None:
    payload = Payload(bytes, JSON)
    assert message(payload, b"{}").value == b"{}"
    assert message(payload, b"\xff", {CONTENT_TYPE: b"image/png"}).value == b"\xff"


@pytest.mark.parametrize("kind", [None, bytes, str, dict, Order, Model, int | None])
def test_a_null_payload_is_refused(kind: Any) -> None:
    with pytest.raises(EncodeError, match="a null payload for orders"):
        Payload[Any](kind).encode(None, "orders")


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Order, {"id": 1}, "orders takes Order, not dict"),
        (Order, Line(Order(1, "c", 0), 1), "orders takes Order, not Line"),
        (bytes, "text", "orders takes bytes, not str"),
        (str, b"raw", "orders takes str, not bytes"),
        (dict, [1], "orders takes dict, not list"),
        (Address, Order(1, "c", 0), "orders takes Address, not Order"),
        (int | str, 1.5, "orders takes int | str, not float"),
        (int, True, "Expected `int`, got `bool`"),
        (Order, MISFIT, "Expected `int`, got `str` - at `$.id`"),
        (Order, Order(1, "c", float("nan")), "Expected `float`, got `null` - at `$.total`"),
        (list[int], [1, "x"], "Expected `int`, got `str` - at `$[1]`"),
        (Address, {"street": "Elm"}, "missing required field `number`"),
        (Literal["on"], "off", "Invalid enum value 'off'"),
        (Model, Model, "orders takes Model, not type"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Any, value: object, reason: str) -> None:
    with pytest.raises(EncodeError) as caught:
        Payload[Any](kind).encode(value, "orders")
    assert reason in str(caught.value)
    assert "nothing was written" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "object does not encode: Encoding objects of type object is unsupported ·"),
        ({"a": [0, {"b": object()}]}, "type object is unsupported - at `$.a[1].b`"),
        (Line(object(), 1), "type object is unsupported - at `$.order`"),  # type: ignore[arg-type]
        ([Order(1, object(), 0)], "unsupported - at `$[0].customer`"),  # type: ignore[arg-type]
        ({"a": {(1, 2): 3}}, "Only dicts with str-like or number-like keys"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_a_value_that_does_not_encode_is_named_by_its_path(value: object, reason: str) -> None:
    with pytest.raises(EncodeError) as caught:
        Payload().encode(value, "orders")
    assert reason in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(EncodeError, match="recursion"):
        Payload().encode(loop, "orders")


@pytest.mark.parametrize(
    ("kind", "data", "name", "reason"),
    [
        (Order, b'{"id":"x"}', "Order", "Expected `int`, got `str` - at `$.id`"),
        (Order, b"{", "Order", "Input data was truncated"),
        (list[int], b'[1,"x"]', "list[int]", "Expected `int`, got `str` - at `$[1]`"),
        (str, b"\xff", "str", "invalid start byte"),
        (None, b"{nope", "JSON", "malformed"),
        (dict, b"", "dict", "truncated"),
    ],
)
def test_bytes_that_do_not_decode_are_named_by_position_type_and_path(
    kind: Any, data: bytes, name: str, reason: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        _ = message(Payload[Any](kind), data).value
    assert caught.value.where == "orders/1.7@42"
    assert caught.value.kind == name
    assert reason in caught.value.reason
    assert not caught.value.retryable


def test_many_are_encoded_like_one_by_one() -> None:
    assert Payload(bytes).encode_many([b"a", b"b"], "raw") == ([b"a", b"b"], None)
    mixed: list[Any] = [b"a", bytearray(b"b")]
    assert Payload(bytes).encode_many(mixed, "raw") == ([b"a", b"b"], None)
    assert Payload(bytes, JSON).encode_many([b"a"], "raw") == ([b"a"], [BYTES])
    assert Payload(int).encode_many([1, 2], "counts") == ([b"1", b"2"], None)
    assert Payload().encode_many([{}, "a", b"b"], "orders") == (
        [b"{}", b"a", b"b"],
        [None, TEXT, BYTES],
    )
    assert Payload().encode_many([], "orders") == ([], None)


def test_the_value_among_many_that_does_not_encode_is_named() -> None:
    values: list[Any] = [b"a", None, b"c"]
    with pytest.raises(EncodeError, match="message 1 of 3: a null payload for raw"):
        Payload(bytes).encode_many(values, "raw")


def test_a_type_that_cannot_be_decoded_is_refused_at_once() -> None:
    with pytest.raises(InvalidValue, match="more than one dict-like type"):
        Payload[Any](Order | dict)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, [1, math.inf], {"a": {"b": -math.inf}}])
def test_a_number_outside_json_is_refused_also_without_a_type(value: object) -> None:
    with pytest.raises(EncodeError, match="NaN"):
        Payload().encode(value, "topic 'a'")
    assert Payload().encode({"a": None, "b": 1.5}, "topic 'a'")[0] == b'{"a":null,"b":1.5}'
