"""Encode values as JSON and decode them, by the annotation of a parameter or of a return value."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any, get_args, get_origin

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

_SCALARS = (int, str, float, bool, type(None))
MAX_RESULT_BYTES = 1_000_000  # bytes of JSON
_encoder = msgspec.json.Encoder()
_UNEXPECTED = re.compile(r"Expected (`[^`]+`).*?\[(?:field_name='(\w+)', )?.*?input_type=(\w+)\]", re.DOTALL)


class UnexpectedType(TypeError):
    """The type of a value does not match its annotation."""


class Codec:
    """`decode` raises ValueError; `encode` raises ValueError or TypeError. `describe_validation_error` formats them."""

    def __init__(self, decode: Callable[[str], Any], encode: Callable[[Any], str]) -> None:
        self.decode = decode
        self.encode = encode


def get_codec(annotation: Any) -> Codec:
    """Return the codec of an annotation. Plain JSON types take the fast path; pydantic handles the rest."""
    try:
        return _get_cached_codec(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _build_codec(annotation)


def encode_any(value: Any) -> str:
    return _encoder.encode(value).decode()


def describe_validation_error(error: BaseException) -> str:
    """Return an error as one line for people; pydantic's errors field by field, without the values."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(map(_describe_field_error, error.errors(include_url=False, include_input=False)))


def _describe_field_error(error: Any) -> str:
    path, message = ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")
    return f"{path}: {message}" if path else message


def count_bytes(text: str) -> int:
    """Return the length of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _build_codec(annotation: Any) -> Codec:
    if annotation is Any:
        return Codec(msgspec.json.Decoder().decode, encode_any)
    if annotation in _SCALARS:
        return Codec(msgspec.json.Decoder(annotation).decode, _scalar_encoder(annotation))
    if _is_plain(annotation):
        return Codec(msgspec.json.Decoder(annotation).decode, _plain_encoder(annotation))
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    return Codec(adapter.validate_json, lambda value: _dump(adapter, value))


def _dump(adapter: TypeAdapter[Any], value: Any) -> str:
    """Return JSON that the next step can read back."""
    try:
        return adapter.dump_json(value, by_alias=True, round_trip=True, warnings="error").decode()
    except PydanticSerializationError as error:
        if (unexpected := _UNEXPECTED.search(str(error))) is None:
            raise
        expected, field, actual = unexpected.groups()
        raise UnexpectedType(f"Expected {expected}, got `{actual}`{f' - at `{field}`' if field else ''}") from error


_get_cached_codec = cache(_build_codec)


def _is_plain(annotation: Any) -> bool:
    if annotation in (*_SCALARS, list, dict, Any):
        return True
    return get_origin(annotation) in (list, dict) and all(_is_plain(part) for part in get_args(annotation))


def _scalar_encoder(expected: Any) -> Callable[[Any], str]:
    accepted = (int, float) if expected is float else (expected or type(None),)

    def encode(value: Any) -> str:
        if not isinstance(value, accepted):
            raise UnexpectedType(f"Expected `{expected.__name__}`, got `{type(value).__name__}`")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"JSON cannot represent {value}")
        return _encoder.encode(value).decode()

    return encode


def _plain_encoder(expected: Any) -> Callable[[Any], str]:
    def encode(value: Any) -> str:
        try:
            return _encoder.encode(msgspec.convert(value, expected)).decode()
        except msgspec.ValidationError as error:
            raise UnexpectedType(str(error)) from error

    return encode
