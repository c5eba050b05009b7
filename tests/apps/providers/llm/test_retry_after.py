from __future__ import annotations

import pytest

from retoma.outgoing import Response
from retoma_apps.providers.retry_after import parse_retry_after

DATE = "Mon, 07 Jan 2030 10:00:00 GMT"
AT = 1_894_010_400_000


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "999999999"}, 3600),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 07 Jan 2030 10:00:30 GMT", "date": DATE}, 30),
        ({"retry-after": "Mon, 07 Jan 2030 09:00:00 GMT", "date": DATE}, 1),
        ({"retry-after": "Mon, 07 Jan 2030 10:00:30 GMT"}, None),
        ({"x-ratelimit-reset": str(AT + 45_000), "date": DATE}, 45),
        ({"x-ratelimit-reset": str(AT + 45_000)}, None),
        ({"x-ratelimit-reset": "60", "date": DATE}, None),
        ({"retry-after": "9", "x-ratelimit-reset": str(AT + 45_000), "date": DATE}, 9),
    ],
)
def test_a_retry_delay_is_parsed_in_every_form_and_bounded(headers: dict[str, str], seconds: float | None) -> None:
    pause = parse_retry_after(Response(429, headers, b""))
    assert (None if pause is None else pause.total_seconds()) == seconds
