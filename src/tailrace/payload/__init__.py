"""Values and their types: conversion to bytes and back, and the type that a topic keeps.

`conversion` has the conversion, `value_type` the stored form of a type, `agreement` the comparison
of two types, and `stored_check` the check of a value without its class.
"""

from __future__ import annotations

from tailrace.payload.conversion import (
    ANY_TYPE,
    BYTES,
    CONTENT_TYPE,
    JSON,
    TEXT,
    Payload,
    is_json,
)
from tailrace.payload.value_type import ValueType

__all__ = ["ANY_TYPE", "BYTES", "CONTENT_TYPE", "JSON", "TEXT", "Payload", "ValueType", "is_json"]
