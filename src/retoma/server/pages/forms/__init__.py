"""A form made from a JSON schema, and what a person typed into it as JSON again.

A field that is a text, a number, a yes or no, a choice, a list of texts or texts by name has a control of its own, and
so has each field of the objects of a list, if they are as simple; all else is JSON. What a schema says under a
language's name, `{"pt": {"title": ..., "description": ...}}`, is said in it. What it calls `hidden` is not offered and
stays as it is.
"""

from __future__ import annotations

from retoma.server.pages.forms.field import ROOT_NAME, Field, FieldError, iterate_controls, visible_fields
from retoma.server.pages.forms.parsing import fill_fields, parse_form, parse_json
from retoma.server.pages.forms.schema_fields import build_fields, build_schema
from retoma.server.pages.forms.validation_errors import map_validation_errors

__all__ = [
    "ROOT_NAME",
    "Field",
    "FieldError",
    "build_fields",
    "build_schema",
    "fill_fields",
    "iterate_controls",
    "map_validation_errors",
    "parse_form",
    "parse_json",
    "visible_fields",
]
