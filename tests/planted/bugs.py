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
    Bug(
        "a name is resolved again after it was checked",
        "outgoing/connector.py",
        "self._network.connect_tcp(str(addresses[-1]), port,",
        "self._network.connect_tcp((await self._resolve('localhost', port))[-1], port,",
        "tests/outgoing/test_connecting.py::test_a_request_goes_to_the_address_and_names_the_host",
    ),
    Bug(
        "one public address among private ones is enough",
        "outgoing/guard.py",
        "        for address in found:\n",
        "        for address in found[:1]:\n",
        "tests/outgoing/test_connecting.py::test_one_private_address_among_public_ones_is_enough_to_refuse[found0]",
    ),
    Bug(
        "the address is not checked when connecting",
        "outgoing/connector.py",
        "        self._guard.check_addresses(host, addresses)\n",
        "",
        "tests/outgoing/test_connecting.py::test_a_name_that_turns_private_between_check_and_use_is_not_reached",
    ),
    Bug(
        "a mapped address hides the one inside it",
        "outgoing/addresses.py",
        "        return address.ipv4_mapped\n",
        "        return address\n",
        "tests/outgoing/test_guard.py::test_a_public_address_may_be_called[::ffff:8.8.8.8]",
    ),
    Bug(
        "an answer is read to its end",
        "outgoing/client.py",
        "        if len(body) > limit:\n            return bytes(body[:limit]), True\n",
        "        if len(body) > 10_000_000:\n            break\n",
        "tests/outgoing/test_requests.py::test_no_more_is_read_than_the_limit",
    ),
    Bug(
        "the deadline is for each read",
        "outgoing/client.py",
        "asyncio.timeout(timeout),",
        "asyncio.timeout(timeout * 20),",
        "tests/outgoing/test_requests.py::test_the_deadline_is_for_the_whole_however_often_a_byte_comes[drips a body]",
    ),
    Bug(
        "signatures are compared as text",
        "signing.py",
        'hmac.compare_digest(a.encode(), b.encode(errors="replace"))',
        "hmac.compare_digest(a, b)",
        "tests/test_signing.py::test_what_was_tampered_with_is_refused_and_never_a_crash",
    ),
    Bug(
        "an old signature is good for ever",
        "signing.py",
        "abs(int(text) - now.timestamp())",
        "(int(text) - now.timestamp())",
        "tests/test_signing.py::test_what_was_signed_too_long_ago_or_in_the_future_is_refused[webhook--away0]",
    ),
    Bug(
        "a late end of an attempt is recorded",
        f"{FUNCTIONS}/deliveries.sql",
        "where d.id = p_id and d.attempt = p_attempt and d.state = 'sending'",
        "where d.id = p_id",
        "tests/webhooks/test_faults.py::test_a_late_record_of_a_lost_lease_changes_nothing",
    ),
    Bug(
        "the next webhook of a run overtakes the former",
        f"{FUNCTIONS}/deliveries.sql",
        "case when former.open then 'infinity' else greatest(p_now, e.open_until) end",
        "greatest(p_now, e.open_until)",
        "tests/webhooks/test_owing.py::test_the_next_waits_while_the_former_fails_and_follows_when_it_is_dead",
    ),
    Bug(
        "a webhook waits for ever for one that has just been delivered",
        f"{FUNCTIONS}/deliveries.sql",
        "    where run = any (p_runs) and ended_at is null\n    order by run, endpoint, seq for update;\n  insert",
        "    where run = any (p_runs) and ended_at is null;\n  insert",
        "tests/webhooks/test_owing.py::test_an_end_that_meets_the_end_of_the_former_delivery_is_not_forgotten",
    ),
    Bug(
        "one slow host takes every sender",
        f"{FUNCTIONS}/deliveries.sql",
        "limit greatest(0, p_each - (",
        "limit greatest(0, p_limit - (",
        "tests/webhooks/test_faults.py::test_a_slow_receiver_does_not_delay_another",
    ),
    Bug(
        "a webhook's body is made anew at each attempt",
        "webhooks/sender.py",
        "        body = taken.body\n",
        "        body = None\n",
        "tests/webhooks/test_sending.py::test_the_body_is_kept_before_the_first_attempt_and_never_made_again",
    ),
    Bug(
        "the end of a run is owed nowhere",
        f"{FUNCTIONS}/halt.sql",
        "  perform retoma.owe(p_now, array_agg(r.id), 'run.' || r.state)\n",
        "  perform count(*)\n",
        "tests/webhooks/test_owing.py::test_every_way_to_end_is_an_end",
    ),
]
