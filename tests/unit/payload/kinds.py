"""One type of values, declared in every way, and types that differ from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic


class Customer(msgspec.Struct):
    name: str
    city: str | None = None


class Order(msgspec.Struct):
    """An order."""

    id: int
    customer: Customer
    paid_at: datetime
    total: float = 0.0
    tags: list[str] = []


@dataclass
class CustomerDataclass:
    name: str
    city: str | None = None


@dataclass
class OrderDataclass:
    id: int
    customer: CustomerDataclass
    paid_at: datetime
    total: float = 0.0
    tags: list[str] = field(default_factory=list)


class CustomerDict(TypedDict):
    name: str
    city: NotRequired[str | None]


class OrderDict(TypedDict):
    id: int
    customer: CustomerDict
    paid_at: datetime
    total: NotRequired[float]
    tags: NotRequired[list[str]]


class CustomerModel(pydantic.BaseModel):
    name: str
    city: str | None = None


class OrderModel(pydantic.BaseModel):
    id: int = pydantic.Field(gt=0)
    customer: CustomerModel
    paid_at: datetime
    total: float = 0.0
    tags: list[str] = []


KINDS: list[Any] = [Order, OrderDataclass, OrderDict, OrderModel]
