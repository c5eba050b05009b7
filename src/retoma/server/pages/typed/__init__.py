"""A form made from a JSON schema, and what a person typed into it as JSON again.

A field that is a text, a number, a yes or no, a choice, a list of texts or texts by name has a control of its own, and
so has each field of the objects of a list, if they are as simple; all else is JSON. What a schema says under a
language's name, `{"pt": {"title": ..., "description": ...}}`, is said in it. What it calls `hidden` is not offered and
stays as it is.
"""

from __future__ import annotations

from retoma.server.pages.typed.complaints import complaints
from retoma.server.pages.typed.field import NAME, Field, Wrong, controls, offered
from retoma.server.pages.typed.form import fields_of, schema_of
from retoma.server.pages.typed.reading import filled, read, read_json

__all__ = [
    "NAME",
    "Field",
    "Wrong",
    "complaints",
    "controls",
    "fields_of",
    "filled",
    "offered",
    "read",
    "read_json",
    "schema_of",
]
