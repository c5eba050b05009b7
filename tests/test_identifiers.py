from __future__ import annotations

import time

from retoma.identifiers import new_run_id


def test_run_ids_sort_in_the_order_in_which_they_were_made() -> None:
    ids = [new_run_id() for _ in range(5_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 5_000


def test_a_run_id_is_a_uuid_of_version_7_with_the_time_in_it() -> None:
    made = new_run_id()
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert abs((made.int >> 80) - time.time() * 1000) < 60_000
