"""Values to JSON and back, by the annotation of a parameter or of a return."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any, get_args, get_origin

import msgspec
from pydantic import TypeAdapter

_SCALARS = (int, str, float, bool, type(None))
LARGEST_RESULT = 1_000_000  # bytes of JSON
_encoder = msgspec.json.Encoder()


class Codec:
    """`decode` raises ValueError, and `encode` ValueError or TypeError, with a sentence for people."""

    def __init__(self, decode: Callable[[str], Any], encode: Callable[[Any], str]) -> None:
        self.decode = decode
        self.encode = encode


def codec_of(annotation: Any) -> Codec:
    """Plain JSON types go the quick way; everything else is pydantic's."""
    try:
        return _cached(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _made(annotation)


def encode_any(value: Any) -> str:
    return _encoder.encode(value).decode()


def size_of(text: str) -> int:
    """In bytes."""
    return len(text) if text.isascii() else len(text.encode())


def _made(annotation: Any) -> Codec:
    if annotation is Any:
        return Codec(msgspec.json.Decoder().decode, encode_any)
    if annotation in _SCALARS:
        return Codec(msgspec.json.Decoder(annotation).decode, _scalar_encoder(annotation))
    if _is_plain(annotation):
        return Codec(msgspec.json.Decoder(annotation).decode, _plain_encoder(annotation))
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    return Codec(adapter.validate_json, lambda value: _dumped(adapter, value))


def _dumped(adapter: TypeAdapter[Any], value: Any) -> str:
    """So that the next step can read it again."""
    return adapter.dump_json(value, by_alias=True, round_trip=True, warnings="error").decode()


_cached = cache(_made)


def _is_plain(annotation: Any) -> bool:
    if annotation in (*_SCALARS, list, dict, Any):
        return True
    return get_origin(annotation) in (list, dict) and all(_is_plain(part) for part in get_args(annotation))


def _scalar_encoder(expected: Any) -> Callable[[Any], str]:
    accepted = (int, float) if expected is float else (expected or type(None),)

    def encode(value: Any) -> str:
        if not isinstance(value, accepted):
            raise TypeError(f"returned {type(value).__name__} where {expected.__name__} is promised")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"returned {value}, for which JSON has no number")
        return _encoder.encode(value).decode()

    return encode


def _plain_encoder(expected: Any) -> Callable[[Any], str]:
    def encode(value: Any) -> str:
        try:
            return _encoder.encode(msgspec.convert(value, expected)).decode()
        except msgspec.ValidationError as error:
            raise TypeError(f"returned a value that is not the promised {expected}: {error}") from error

    return encode
