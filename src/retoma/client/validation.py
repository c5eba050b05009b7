"""Validate and normalise the arguments of the client before anything is written."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from retoma.client.titles import make_titles
from retoma.define.codec import MAX_RESULT_BYTES, describe_validation_error
from retoma.define.options import MAX_PRIORITY
from retoma.define.pipeline import MAX_RESUMES, Input, Pipeline
from retoma.errors import InvalidInput

MAX_NAME_LENGTH = 500
INPUTS_AT_A_TIME = 1_000
MAX_YEAR = 9000
MAX_REVISION = 2**31 - 1  # as the column holds it
MAX_DEADLINE = timedelta(days=3650)


def validate_input(pipeline: Pipeline, inputs: Input, tenant: str) -> BaseModel | None:
    """Return the input as validated by the pipeline's model. Raise InvalidInput if it belongs to another tenant."""
    checked = _validate_model(pipeline, inputs)
    if pipeline.tenant_field is not None and (owner := getattr(checked, pipeline.tenant_field)) != tenant:
        raise InvalidInput(
            f"the input of pipeline {pipeline.name!r} belongs to another tenant: its {pipeline.tenant_field} is "
            f"{owner!r:.80}, and the tenant of the run {tenant!r:.80}"
        )
    return checked


def _validate_model(pipeline: Pipeline, inputs: Input) -> BaseModel | None:
    if pipeline.inputs is None:
        if inputs:
            raise InvalidInput(f"pipeline {pipeline.name!r} takes no input")
        return None
    if isinstance(inputs, pipeline.inputs):
        return inputs
    try:
        plain = inputs.model_dump() if isinstance(inputs, BaseModel) else dict(inputs or {})
        return pipeline.inputs.model_validate(plain)
    except ValidationError as error:
        raise InvalidInput(
            f"the input of pipeline {pipeline.name!r} is not valid: {describe_validation_error(error)}"
        ) from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the input of pipeline {pipeline.name!r} must be a dictionary or a model: {error}"
        ) from error


async def encode_inputs(
    pipeline: Pipeline, all_inputs: Sequence[Input], tenant: str, *, keyed: bool
) -> tuple[list[str], list[str | None], bytes | None]:
    """Validate and encode many inputs, and return them with their titles; with `keyed` also one digest of them all.

    Yields to the event loop in between, so other tasks need not wait for all inputs.
    """
    texts: list[str] = []
    titles: list[str | None] = []
    digest = hashlib.sha256()
    for first in range(0, len(all_inputs), INPUTS_AT_A_TIME):
        inputs = [validate_input(pipeline, one, tenant) for one in all_inputs[first : first + INPUTS_AT_A_TIME]]
        texts += map(encode_input, inputs)
        titles += make_titles(pipeline, inputs)
        digest.update(b"".join(map(digest_input, inputs)) if keyed else b"")
        await asyncio.sleep(0)
    return texts, titles, digest.digest() if keyed else None


def encode_value(value: Any) -> str:
    try:
        text = json.dumps(to_jsonable_python(value), allow_nan=False)
    except ValueError as error:
        raise InvalidInput(f"this result cannot be JSON: {error}") from error
    if len(text) > MAX_RESULT_BYTES:  # ASCII only: other characters are escaped
        raise InvalidInput(f"this result is {len(text):,} bytes of JSON, over the limit of {MAX_RESULT_BYTES:,}")
    return text


def encode_input(inputs: BaseModel | None) -> str:
    """Encode the input so that its model can read it back: by alias and without computed fields."""
    try:
        return "{}" if inputs is None else inputs.model_dump_json(by_alias=True, round_trip=True)
    except ValueError as error:
        raise InvalidInput(f"this input cannot be JSON: {error}") from error


def check_start_options(*, tenant: str, key: str | None, priority: int, run_at: datetime | None) -> None:
    check_name("tenant", tenant)
    check_name("key", key)
    check_time("run_at", run_at)
    if not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
        raise InvalidInput(f"a priority is a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}, not {priority!r:.80}")


def check_name(what: str, value: str | None) -> None:
    if value is not None and not is_name(value):
        raise InvalidInput(f"a {what} is a text of 1 to {MAX_NAME_LENGTH} characters, not {value!r:.80}")


def check_time_zone(name: str) -> None:
    if name not in available_timezones():
        raise InvalidInput(f"{name!r:.60} is not a time zone: use a name such as America/Sao_Paulo")


def check_time(what: str, value: datetime | None) -> None:
    if value is not None and (value.tzinfo is None or value.year > MAX_YEAR):
        raise InvalidInput(f"{what} must have a time zone and a year up to {MAX_YEAR}, unlike {value}")


def check_revision(value: int | None) -> None:
    if value is not None and not 0 < value <= MAX_REVISION:
        raise InvalidInput(f"a revision is a whole number from 1 to {MAX_REVISION}, not {value!r:.40}")


def check_limits(resumes: int | None, retries: int | None, deadline: timedelta | None) -> None:
    for what, number in (("resumes", resumes), ("retries", retries)):
        if number is not None and not 0 <= number <= MAX_RESUMES:
            raise InvalidInput(f"{what} must be a whole number from 0 to {MAX_RESUMES}, not {number!r:.40}")
    if deadline is not None and not timedelta(0) < deadline <= MAX_DEADLINE:
        raise InvalidInput(f"a deadline is above zero and at most {MAX_DEADLINE.days} days, not {deadline!r:.60}")


def is_name(value: object) -> bool:
    """Return whether PostgreSQL can store it: without NUL and unpaired surrogates."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH:
        return False
    return "\0" not in value and (value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value))


def digest_input(inputs: BaseModel | None) -> bytes:
    """Return the digest of the values that the caller set, regardless of defaults and of the order of keys and sets."""
    values = {} if inputs is None else inputs.model_dump(exclude_unset=True, exclude_defaults=True)
    return digest_values(values)


def digest_values(values: Any) -> bytes:
    return hashlib.sha256(json.dumps(_canonical(values), sort_keys=True).encode()).digest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _canonical(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_canonical(each) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return to_jsonable_python(value, fallback=repr)
