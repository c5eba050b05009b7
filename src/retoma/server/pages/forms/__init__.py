"""Build a form from a JSON schema, and parse the submitted form to JSON.

Texts, numbers, booleans, choices, moments, lists of texts and texts by name have their own controls, and so have the
fields of objects in a list if they are as simple; all others are edited as JSON. Titles, descriptions and the names of
fields without a title are translated. A `hidden` field is not shown and keeps its value.
"""

from __future__ import annotations

from retoma.server.pages.forms.field import (
    ROOT_NAME,
    Field,
    FieldError,
    format_moment,
    iterate_controls,
    offer_choices,
    set_zone,
    visible_fields,
)
from retoma.server.pages.forms.parsing import fill_fields, parse_form, parse_json
from retoma.server.pages.forms.schema_fields import build_fields, build_schema, make_label, resolve_schema
from retoma.server.pages.forms.validation_errors import map_validation_errors
