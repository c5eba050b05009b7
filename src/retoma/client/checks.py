"""What callers give, checked before anything is written, and brought into one form."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from retoma.define.codec import LARGEST_RESULT, sentence_of
from retoma.define.options import HIGHEST_PRIORITY
from retoma.define.pipeline import MOST_RESUMES, Pipeline
from retoma.errors import InvalidInput

Input = BaseModel | Mapping[str, Any] | None
LONGEST_NAME = 500
INPUTS_AT_A_TIME = 1_000
LAST_YEAR = 9000
LAST_REVISION = 2**31 - 1  # as the column holds it
LONGEST_DEADLINE = timedelta(days=3650)


def id_range(prefix: str) -> tuple[UUID, UUID] | None:
    """The first and the last id that begin like this."""
    digits = prefix.strip().lower().replace("-", "")
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def validated(pipeline: Pipeline, given: Input) -> BaseModel | None:
    """The input, after its model accepted it."""
    if pipeline.inputs is None:
        if given:
            raise InvalidInput(f"pipeline {pipeline.name!r} takes no input")
        return None
    if isinstance(given, pipeline.inputs):
        return given
    try:
        plain = given.model_dump() if isinstance(given, BaseModel) else dict(given or {})
        return pipeline.inputs.model_validate(plain)
    except ValidationError as error:
        raise InvalidInput(f"pipeline {pipeline.name!r} refuses this input: {sentence_of(error)}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"pipeline {pipeline.name!r} takes its input as a dictionary or a model: {error}") from error


async def all_as_json(pipeline: Pipeline, given: Sequence[Input], *, keyed: bool) -> tuple[list[str], bytes | None]:
    """Many inputs, after their model accepted all of them; with `keyed` one digest of all.

    In parts, so that others on this loop need not wait for the last of many.
    """
    texts: list[str] = []
    digest = hashlib.sha256()
    for first in range(0, len(given), INPUTS_AT_A_TIME):
        inputs = [validated(pipeline, one) for one in given[first : first + INPUTS_AT_A_TIME]]
        texts += map(as_json, inputs)
        digest.update(b"".join(map(digest_of, inputs)) if keyed else b"")
        await asyncio.sleep(0)
    return texts, digest.digest() if keyed else None


def encoded(value: Any) -> str:
    try:
        text = json.dumps(to_jsonable_python(value), allow_nan=False)
    except ValueError as error:
        raise InvalidInput(f"this result cannot be JSON: {error}") from error
    if len(text) > LARGEST_RESULT:  # written so that each letter that is not ASCII takes six
        raise InvalidInput(f"this result is {len(text):,} bytes of JSON, over the limit of {LARGEST_RESULT:,}")
    return text


def as_json(inputs: BaseModel | None) -> str:
    """So that the model can read it again, by alias and without what it computes."""
    try:
        return "{}" if inputs is None else inputs.model_dump_json(by_alias=True, round_trip=True)
    except ValueError as error:
        raise InvalidInput(f"this input cannot be JSON: {error}") from error


def check(*, tenant: str, key: str | None, priority: int, run_at: datetime | None) -> None:
    check_name("tenant", tenant)
    check_name("key", key)
    check_time("run_at", run_at)
    if not isinstance(priority, int) or abs(priority) > HIGHEST_PRIORITY:
        raise InvalidInput(f"a priority is a whole number up to {HIGHEST_PRIORITY}; given: {priority!r:.80}")


def check_name(what: str, given: str | None) -> None:
    if given is not None and not is_name(given):
        raise InvalidInput(f"a {what} is 1 to {LONGEST_NAME} characters of text; given: {given!r:.80}")


def check_time(what: str, given: datetime | None) -> None:
    if given is not None and (given.tzinfo is None or given.year > LAST_YEAR):
        raise InvalidInput(f"{what} is a time with its zone, up to the year {LAST_YEAR}; given: {given}")


def check_revision(given: int | None) -> None:
    if given is not None and not 0 < given <= LAST_REVISION:
        raise InvalidInput(f"a revision is a number from 1 to {LAST_REVISION}; given: {given!r:.40}")


def check_limits(resumes: int | None, retries: int | None, deadline: timedelta | None) -> None:
    for what, number in (("resumes", resumes), ("retries", retries)):
        if number is not None and not 0 <= number <= MOST_RESUMES:
            raise InvalidInput(f"{what} are a number from 0 to {MOST_RESUMES}; given: {number!r:.40}")
    if deadline is not None and not timedelta(0) < deadline <= LONGEST_DEADLINE:
        raise InvalidInput(
            f"a deadline is above zero and at most {LONGEST_DEADLINE.days} days; given: {deadline!r:.60}"
        )


def is_name(given: object) -> bool:
    """Whether PostgreSQL can hold it: neither NUL nor half a character."""
    if not isinstance(given, str) or not 0 < len(given) <= LONGEST_NAME:
        return False
    return "\0" not in given and (given.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in given))


def digest_of(inputs: BaseModel | None) -> bytes:
    """Of what the caller gave, in one form: neither defaults nor the order of keys or of a set matter."""
    given = {} if inputs is None else inputs.model_dump(exclude_unset=True, exclude_defaults=True)
    return digest_of_values(given)


def digest_of_values(given: Any) -> bytes:
    return hashlib.sha256(json.dumps(_canonical(given), sort_keys=True).encode()).digest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _canonical(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_canonical(each) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return to_jsonable_python(value, fallback=repr)
