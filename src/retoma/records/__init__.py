"""The records that the client returns: runs, jobs, reviews, events, workers and more, as the database had them.

The API returns the same classes; a field's description is the one in the OpenAPI document.
"""

from retoma.identifiers import ALL_TENANTS
from retoma.records.api_key import CROSS_TENANT_SCOPES, ApiKey, NewApiKey, Scope
from retoma.records.bulk_action import BulkAction, BulkKind, BulkPreview, BulkTarget, WaitingRetry
from retoma.records.capacity import AutoscaleAdvice, JobStack, Pool, PoolJob, RunningJob, Server, Worker, WorkerStacks
from retoma.records.charge import Charge, ChargeTotal, Price
from retoma.records.delivery import (
    Delivery,
    DeliveryAttempt,
    DeliveryDetails,
    Endpoint,
    NewSubscription,
    Subscription,
)
from retoma.records.external_work import ExternalWork, Orphan, OrphanResolution
from retoma.records.inbound_event import InboundEvent
from retoma.records.job import FailedAttempt, ItemStatus, ItemTotals, Job, StepProgress
from retoma.records.review import DecisionResult, Review, ReviewCount, ReviewMetrics, Subject
from retoma.records.run import (
    ABOUT_FIELDS,
    GENERIC_CODE,
    ErrorCounts,
    Event,
    LiveEvent,
    PipelineMetrics,
    Revision,
    Run,
    RunSummary,
    StepRevision,
    StuckRun,
    describe_recorded_error,
)
from retoma.records.tenant import Fact, Profile
from retoma.records.wait import REASON_MESSAGES, StuckCause, Wait, WaitReason

__all__ = [
    "ABOUT_FIELDS",
    "ALL_TENANTS",
    "CROSS_TENANT_SCOPES",
    "GENERIC_CODE",
    "REASON_MESSAGES",
    "ApiKey",
    "AutoscaleAdvice",
    "BulkAction",
    "BulkKind",
    "BulkPreview",
    "BulkTarget",
    "Charge",
    "ChargeTotal",
    "DecisionResult",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryDetails",
    "Endpoint",
    "ErrorCounts",
    "Event",
    "ExternalWork",
    "Fact",
    "FailedAttempt",
    "InboundEvent",
    "ItemStatus",
    "ItemTotals",
    "Job",
    "JobStack",
    "LiveEvent",
    "NewApiKey",
    "NewSubscription",
    "Orphan",
    "OrphanResolution",
    "PipelineMetrics",
    "Pool",
    "PoolJob",
    "Price",
    "Profile",
    "Review",
    "ReviewCount",
    "ReviewMetrics",
    "Revision",
    "Run",
    "RunSummary",
    "RunningJob",
    "Scope",
    "Server",
    "StepProgress",
    "StepRevision",
    "StuckCause",
    "StuckRun",
    "Subject",
    "Subscription",
    "Wait",
    "WaitReason",
    "WaitingRetry",
    "Worker",
    "WorkerStacks",
    "describe_recorded_error",
]
