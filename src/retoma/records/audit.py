"""Entries of the audit log: who did what to which object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from retoma.records.actor import ActorKind


class AuditAction(StrEnum):
    """What can be done to an object. The part before the dot is the kind of the object."""

    RUN_START = "run.start"
    RUN_CANCEL = "run.cancel"
    RUN_RESUME = "run.resume"
    RUN_RERUN = "run.rerun"
    RUN_RERUN_FAILED = "run.rerun_failed"
    RUN_RETRY_NOW = "run.retry_now"
    RUN_EDIT = "run.edit"
    RUN_SKIP = "run.skip"
    RUN_FORK = "run.fork"
    RUN_RESOLVE_ORPHAN = "run.resolve_orphan"
    RUN_HOLD = "run.hold"
    RUN_RELEASE = "run.release"
    RUN_ERASE = "run.erase"
    REVIEW_DECIDE = "review.decide"
    REVIEW_UNDO = "review.undo"
    REVIEW_CLAIM = "review.claim"
    REVIEW_ASSIGN = "review.assign"
    REVIEW_RESOLVE_COMMENT = "review.resolve_comment"
    BULK_ACTION_START = "bulk_action.start"
    BULK_ACTION_ABORT = "bulk_action.abort"
    SCHEDULE_CREATE = "schedule.create"
    SCHEDULE_UPDATE = "schedule.update"
    SCHEDULE_PAUSE = "schedule.pause"
    SCHEDULE_RESUME = "schedule.resume"
    SCHEDULE_DELETE = "schedule.delete"
    SCHEDULE_TRIGGER = "schedule.trigger"
    POOL_UPDATE = "pool.update"
    QUEUE_UPDATE = "queue.update"
    QUEUE_PAUSE = "queue.pause"
    QUEUE_RESUME = "queue.resume"
    WORKER_DRAIN = "worker.drain"
    WORKER_STACKS = "worker.stacks"
    DELIVERY_REDELIVER = "delivery.redeliver"
    ENDPOINT_REDELIVER_ALL = "endpoint.redeliver_all"
    ENDPOINT_ENABLE = "endpoint.enable"
    ENDPOINT_SUBSCRIBE = "endpoint.subscribe"
    ENDPOINT_UNSUBSCRIBE = "endpoint.unsubscribe"
    ENDPOINT_ROTATE_SECRET = "endpoint.rotate_secret"  # noqa: S105  (a name)
    PRICE_SET = "price.set"
    BUDGET_SET = "budget.set"
    BUDGET_REMOVE = "budget.remove"
    CONNECTION_SET = "connection.set"
    CONNECTION_DELETE = "connection.delete"
    CONNECTION_TEST = "connection.test"
    CONNECTION_ROTATE = "connection.rotate"
    TENANT_SET_MONEY = "tenant.set_money"
    TENANT_SET_PROFILE = "tenant.set_profile"
    TENANT_DELETE_PROFILE = "tenant.delete_profile"
    TENANT_ERASE = "tenant.erase"
    API_KEY_CREATE = "api_key.create"
    API_KEY_ROTATE = "api_key.rotate"
    API_KEY_REVOKE = "api_key.revoke"
    PERSON_CREATE = "person.create"
    PERSON_UPDATE = "person.update"
    PERSON_INVITE = "person.invite"
    PERSON_RESET_PASSWORD = "person.reset_password"  # noqa: S105  (a name)
    PERSON_SET_PASSWORD = "person.set_password"  # noqa: S105  (a name)
    PERSON_SET_ROLE = "person.set_role"
    PERSON_REMOVE_ROLE = "person.remove_role"
    PERSON_DISABLE = "person.disable"
    PERSON_ENABLE = "person.enable"
    PERSON_LINK = "person.link"
    PERSON_UNLINK = "person.unlink"
    PERSON_END_SESSIONS = "person.end_sessions"
    PERSON_LOG_IN = "person.log_in"
    PERSON_LOG_IN_FAILED = "person.log_in_failed"
    PERSON_LOG_OUT = "person.log_out"
    PERSON_SET_SECOND_FACTOR = "person.set_second_factor"
    PERSON_REMOVE_SECOND_FACTOR = "person.remove_second_factor"
    PERSON_RENEW_RECOVERY_CODES = "person.renew_recovery_codes"
    PERSON_SET_NOTIFICATIONS = "person.set_notifications"
    PERSON_SET_KEYS = "person.set_keys"
    NOTIFICATION_SET_DEFAULT = "notification.set_default"
    NOTIFICATION_RESEND = "notification.resend"
    AUDIT_DELETE = "audit.delete"
    BACKUP_CREATE = "backup.create"
    BACKUP_RESTORE = "backup.restore"
    BACKUP_RELEASE_HELD = "backup.release_held"
    BACKUP_DROP_HELD = "backup.drop_held"
    DATABASE_MOVE = "database.move"
    RETENTION_SET_RULE = "retention.set_rule"
    RETENTION_REMOVE_RULE = "retention.remove_rule"
    RETENTION_RUN = "retention.run"

    @property
    def object_kind(self) -> str:
        return self.partition(".")[0]


@dataclass(frozen=True)
class AuditEntry:
    """`before` and `after` have what the action changed, without secrets. `address` is that of the request."""

    id: int
    at: datetime
    actor_kind: ActorKind
    actor_id: str | None
    actor_name: str
    address: str | None
    action: str
    object_kind: str
    object_id: str | None
    tenant: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
