"""Mistakes that would break a promise, each with the test that must notice it."""

from __future__ import annotations

from typing import NamedTuple

FUNCTIONS = "store/sql/functions"


class Bug(NamedTuple):
    """`right` stands in `file` (under src/retoma) and is replaced by `wrong`; `killed_by` must then fail."""

    name: str
    file: str
    right: str
    wrong: str
    killed_by: str


BUGS = [
    Bug(
        "a result is taken whatever its fence",
        f"{FUNCTIONS}/succeed.sql",
        "and j.worker = p_worker and j.fence = o.fence and j.state = 'running'",
        "and j.state = 'running'",
        "tests/engine/test_leases.py::test_a_stale_fence_cannot_finish_and_is_counted",
    ),
    Bug(
        "a result is taken whatever the job's state",
        f"{FUNCTIONS}/succeed.sql",
        " and j.state = 'running'\n    returning j.run",
        "\n    returning j.run",
        "tests/engine/test_leases.py::test_a_result_is_recorded_once_and_never_changes",
    ),
    Bug(
        "a claim gives no new fence",
        f"{FUNCTIONS}/claim.sql",
        "fence = j.fence + 1, attempt = j.attempt + 1, started_at = p_now, code = null\n         where",
        "fence = j.fence, attempt = j.attempt + 1, started_at = p_now, code = null\n         where",
        "tests/engine/test_leases.py::test_every_claim_has_a_higher_fence",
    ),
    Bug(
        "a claim does not skip what another holds",
        f"{FUNCTIONS}/claim.sql",
        "and c.worker is null and c.waiting_on = 0 and c.ready_at is null and c.deaths = 0\n"
        "                       and c.version",
        "and c.waiting_on = 0 and c.ready_at is null and c.deaths = 0\n                       and c.version",
        "tests/engine/test_claim_order.py::test_a_job_is_claimed_by_one_worker_only",
    ),
    Bug(
        "the end of a cancelled run's job starts its successor",
        f"{FUNCTIONS}/succeed.sql",
        "where not e.ending",
        "where true",
        "tests/engine/test_cancel.py::test_a_finish_after_the_cancel_is_kept_and_starts_no_successor",
    ),
    Bug(
        "stopping a run looks only once",
        f"{FUNCTIONS}/halt.sql",
        "  end loop;\n\n  update retoma.runs",
        "  exit; end loop;\n\n  update retoma.runs",
        "tests/engine/test_races.py::test_a_job_claimed_while_its_run_is_cancelled_starts_nothing_more",
    ),
    Bug(
        "the last two jobs of a stopping run do not see each other",
        f"{FUNCTIONS}/halt.sql",
        "  perform from retoma.runs where id = any (p_runs) order by id for update;\n",
        "",
        "tests/engine/test_races.py::test_the_last_two_jobs_of_a_cancelled_run_end_it_once_when_they_end_at_once",
    ),
    Bug(
        "a join waits for one item too few",
        f"{FUNCTIONS}/settle.sql",
        "else 1 - coalesce(p_motion.items, 0) end",
        "else 2 - coalesce(p_motion.items, 0) end",
        "tests/engine/test_fan_out.py::test_a_join_waits_for_the_last_item",
    ),
    Bug(
        "what items share and the items themselves miss each other",
        f"{FUNCTIONS}/expand.sql",
        "  perform retoma.lock_runs('share', array_agg(m.run))\n",
        "  perform (array_agg(m.run))\n",
        "tests/engine/test_races.py::test_a_source_and_what_its_items_share_may_end_at_once",
    ),
    Bug(
        "a dead worker can still call",
        f"{FUNCTIONS}/upkeep.sql",
        "  delete from retoma.lanes where worker = p_worker;\n",
        "",
        "tests/engine/test_leases.py::test_a_buried_worker_can_claim_nothing",
    ),
    Bug(
        "a call that is sent again is made again",
        f"{FUNCTIONS}/exchange.sql",
        "and call = p_call - 1;",
        "and call <= p_call;",
        "tests/engine/test_lost_answers.py::test_a_claim_whose_answer_is_lost_is_made_once_and_the_worker_is_told_what_it_holds",
    ),
    Bug(
        "a job that kills its workers is tried for ever",
        f"{FUNCTIONS}/set_back.sql",
        "p_deaths >= 2 or",
        "p_deaths >= 2000 or",
        "tests/engine/test_leases.py::test_a_job_that_kills_its_worker_three_times_is_quarantined",
    ),
    Bug(
        "the same key starts two runs",
        f"{FUNCTIONS}/start_runs.sql",
        "where a.known is null or a.known = a.id",
        "where true",
        "tests/engine/test_start.py::test_two_clients_that_start_the_same_key_at_once_start_one_run",
    ),
    Bug(
        "one tenant's backlog goes before everyone",
        f"{FUNCTIONS}/claim.sql",
        "limit greatest(1, v_left / cardinality(v_tenants))",
        "limit v_left",
        "tests/engine/test_tenants.py::test_a_tenant_with_a_hundred_jobs_does_not_starve_another",
    ),
    Bug(
        "an attempt that asked to wait is counted",
        f"{FUNCTIONS}/set_back.sql",
        "attempt = j.attempt - (o.outcome in ('wait', 'back'))::int",
        "attempt = j.attempt",
        "tests/engine/test_retry.py::test_asking_to_wait_uses_up_neither_attempt_nor_retry",
    ),
    Bug(
        "a need without a result is forgotten where another need implies its end",
        "define/needs.py",
        "not (ended.implied(edge, others) and lacking.implied(edge, others))",
        "not ended.implied(edge, others)",
        "tests/define/test_lacking_needs.py::test_a_need_is_counted_where_the_other_can_run_without_it",
    ),
    Bug(
        "a job that was claimed by a lost answer is never run",
        "worker/life.py",
        "                if replayed:\n                    await self._recover(lane)\n",
        "",
        "tests/worker/test_worker.py::test_jobs_claimed_by_a_call_whose_answer_was_lost_are_run",
    ),
    Bug(
        "a child process inherits the environment",
        "worker/children.py",
        "env=environment",
        "env=None",
        "tests/worker/test_isolation.py::test_an_isolated_step_runs_elsewhere_and_without_secrets",
    ),
]
