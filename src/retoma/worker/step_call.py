"""Turn a claimed job into a call of its step's function, and the function's result into JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from decimal import Decimal
from math import ceil
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from retoma.define.codec import MAX_RESULT_BYTES, UnexpectedType, count_bytes, encode_any, get_codec
from retoma.define.connections import PerTenant, TenantConnections
from retoma.define.context import Context
from retoma.define.external_work import locate_provider
from retoma.define.graph import EdgeKind, Graph
from retoma.define.items import SKIPPED, FailedItem, ItemCounts, Items
from retoma.define.options import MAX_COST_LIMIT
from retoma.define.pipeline import Pipeline
from retoma.define.provider_chain import ProviderChain, SingleProvider, unwrap_provider
from retoma.define.step import Binding, Step
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import Success
from retoma.errors import DefinitionError, GiveUp
from retoma.worker.chain_provider import ChainProvider

if TYPE_CHECKING:
    from retoma.engine.tenant_resources import Built  # imports the database, which a child process does without

MICROS_PER_DOLLAR = 1_000_000
Arguments = dict[str, Any]
TOO_LARGE = '"TOO_LARGE"'  # sent instead of the results of all items
_MISSING = object()


class DependencyMissing(Exception):
    """A step that this job depends on has no result."""


class StepCall:
    """Everything about one step of one version that is the same for all its jobs.

    The version decides what a job reads, the current function what it takes: DefinitionError if they do not match.
    `chain` is the provider chain that the step takes, if any. Each attempt then uses its own copy, with a `provider`.
    With `needs_tenant` it also needs one with the resources of its tenant.
    """

    def __init__(self, pipeline: Pipeline, step: Step, graph: Graph, resources: Mapping[str, Any]) -> None:
        self.step = step
        self.graph = graph
        self.is_async = inspect.iscoroutinefunction(step.function)
        self.timeout = step.policy.timeout.total_seconds()
        self._work_limit = step.policy.work_limit
        self.wakes_others = _wakes_others(graph, step.name)
        self._encode = get_codec(step.returns).encode
        self._decode = get_codec(step.returns).decode
        self._item_set = pipeline.item_sets.get(step.name) if _fans_out(graph, step.name) else None
        self._encode_item = _build_item_encoder(step.returns)
        _check_shape(pipeline, step, graph)
        reads = _list_reads(graph, step.name)
        self._readers = [(binding, _build_reader(pipeline, binding, reads)) for binding in step.bindings]
        self._set_resources({r.name: resources[r.name] for r in step.resources if r.name in resources})
        self.needs_tenant = any(isinstance(each, PerTenant) for each in self.resources.values())
        self._tenant: tuple[str, list[TenantConnections]] | None = None
        self.provider: ChainProvider | None = None
        self.checks_before_attempt = (
            self.chain is not None or self._single_provider is not None or self.needs_tenant or step.may_charge
        )
        self.takes_input = any(binding.kind == "input" for binding in step.bindings)
        self.takes_item = any(binding.kind == "item" for binding in step.bindings)
        self.takes_context = any(resource.name == "ctx" for resource in step.resources)
        self._join_parameters = [binding.parameter for binding in step.bindings if binding.kind == "items"]

    def build_arguments(self, claim: Claim) -> Arguments:
        """Return the data parameters. If a step has no result, use the default or raise DependencyMissing."""
        values = {}
        for binding, read in self._readers:
            value = read(claim)
            if value is _MISSING and not binding.optional:
                raise DependencyMissing(binding.name)
            values[binding.parameter] = binding.default if value is _MISSING else value
        return values

    def build_arguments_if_called(self, claim: Claim) -> Arguments | None:
        """Return the data parameters, or None if the function will not be called."""
        try:
            data = self.build_arguments(claim)
            return data if self.step.should_run(data) else None
        except Exception:  # noqa: BLE001  (application code; the attempt repeats this and reports the error)
            return None

    def estimate_micros(self, data: Arguments) -> int | None:
        """Return what an attempt with this data is expected to cost, in millionths of a US dollar.

        None without an estimate. Raise ValueError if it is no amount.
        """
        if self.step.estimated_cost is None:
            return None
        estimate = self.step.estimate_cost(data)
        is_number = isinstance(estimate, int | float | Decimal) and not isinstance(estimate, bool)
        if not is_number or not 0 <= estimate < MAX_COST_LIMIT:  # type: ignore[operator]
            raise ValueError(
                f"estimated_cost= of {self.step.name!r} returned {estimate!r:.80}; return US dollars as a number"
            )
        return ceil(Decimal(estimate) * MICROS_PER_DOLLAR)  # type: ignore[arg-type]

    def get_time_limit(self, claim: Claim) -> float:
        """Return the seconds that this attempt may take: its timeout, or the rest of the work limit."""
        if self._work_limit is None:
            return self.timeout
        worked = claim.spent_ms + claim.earlier.milliseconds
        return max(0.0, min(self.timeout, self._work_limit.total_seconds() - worked / 1000))

    def build_resources(self, context: Context | None) -> Arguments:
        """Return the keyword-only parameters."""
        return self.resources | {"ctx": context} if self.takes_context else self.resources

    def with_provider(self, provider: ChainProvider) -> StepCall:
        """Return a copy for one attempt, whose function takes this provider in place of the chain."""
        bound = copy(self)
        bound.provider = provider
        bound.resources = self.resources | {self._chain_name: provider.provider}
        return bound

    def with_tenant(self, tenant: str, built: Mapping[str, Built]) -> StepCall:
        """Return a copy for one attempt, whose function takes these resources of the job's tenant."""
        bound = copy(self)
        bound._set_resources(self._given | {name: each.resource for name, each in built.items()})
        bound._tenant = (tenant, [each.connections for each in built.values()])
        return bound

    def _set_resources(self, resources: dict[str, Any]) -> None:
        self._given = resources
        singles = [each.name for each in resources.values() if isinstance(each, SingleProvider)]
        self._single_provider = singles[0] if len(singles) == 1 else None
        self.resources = {name: unwrap_provider(each) for name, each in resources.items()}
        self.chain, self._chain_name = _find_chain(self.resources)

    @property
    def provider_name(self) -> str | None:
        """The name of the provider that the attempt uses: the one of its chain, or the single one; None without."""
        return self._single_provider if self.provider is None else self.provider.name

    @property
    def account(self) -> str | None:
        """The tenant whose own connections the attempt uses, so that its trouble with a provider is that of no other
        tenant; None if it uses what all tenants use."""
        if self._tenant is None or not any(each.uses_own for each in self._tenant[1]):
            return None
        return self._tenant[0]

    @property
    def located_resources(self) -> dict[str, Any]:
        """Return the resources by the names under which another process finds them, as `llm[openrouter]` of a chain."""
        if self.provider is None:
            return self.resources
        others = {name: value for name, value in self.resources.items() if name != self._chain_name}
        return {locate_provider(self._chain_name, self.provider.name): self.provider.provider} | others

    def explain_too_many_failed(self, data: Arguments) -> str | None:
        """Return a message if `proceed_when` does not hold for the items of this join."""
        for parameter in self._join_parameters:
            items = data[parameter]
            if not isinstance(items, Items):  # the default, if the fan-out was skipped
                continue
            counts = _count_items(items)
            if not self.step.should_proceed(counts):
                return (
                    f"{counts.failed} of {counts.total} items of {parameter!r} failed, more than "
                    f"{self.step.name!r} allows with proceed_when"
                )
        return None

    def encode_result(self, value: Any) -> str:
        """Return the result as JSON. Raise ValueError or TypeError with a message that says what to do."""
        output = self._encode_value(value)
        if (size := count_bytes(output)) > MAX_RESULT_BYTES:
            raise ValueError(
                f"the result of {self.step.name!r} is {size:,} bytes of JSON, over the limit of "
                f"{MAX_RESULT_BYTES:,}: keep large data in a file and return its location"
            )
        return output

    def build_result(self, claim: Claim, output: str) -> Success:
        """Return a result without an attempt: it is reused, or a person entered it."""
        return Success(claim, output, self.encode_items(self._decode(output)) if self._item_set else None)

    def encode_items(self, value: Any) -> dict[str, str] | None:
        """Return keys and values of the items, or None if there is no fan-out. Raise GiveUp for invalid items."""
        if self._item_set is None:
            return None
        try:
            keys = self._item_set.compute_keys(value)
        except ValueError as error:
            raise GiveUp(str(error), "INVALID_ITEMS") from error
        return dict(zip(keys, map(self._encode_item, value), strict=True))

    def _encode_value(self, value: Any) -> str:
        name, annotated = self.step.name, self.step.returns
        try:
            return self._encode(value)
        except UnexpectedType as error:
            annotated = annotated.__name__ if isinstance(annotated, type) else annotated
            raise TypeError(
                f"the result of {name!r} is not of the annotated type {annotated}: {error}: "
                "change the annotation or the returned value"
            ) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"the result of {name!r} cannot be written as JSON: {error}: "
                "return text, numbers, lists, dicts, a dataclass or a pydantic model"
            ) from error


def _find_chain(resources: Mapping[str, Any]) -> tuple[ProviderChain | None, str]:
    """Return the chain among these resources and its name. A step takes at most one."""
    chains = ((value, name) for name, value in resources.items() if isinstance(value, ProviderChain))
    return next(chains, (None, ""))


def _check_shape(pipeline: Pipeline, step: Step, graph: Graph) -> None:
    """Raise DefinitionError if the fan-out has changed: items would be lost without notice."""
    shape = next(shape for shape in graph.steps if shape.name == step.name)
    if shape.source != step.source:
        raise DefinitionError(
            f"in runs of this version it fans out over {shape.source!r}, in the current code over {step.source!r}"
        )
    if _fans_out(graph, step.name) and step.name not in pipeline.item_sets:
        raise DefinitionError("runs of this version fan out over its result, but the current code does not")


def _fans_out(graph: Graph, step: str) -> bool:
    return any(edge.kind == "expand" and edge.from_step == step for edge in graph.edges)


def _wakes_others(graph: Graph, step: str) -> bool:
    """Return whether its end may create work or free slots for another worker."""
    queues = {shape.name: shape.queue for shape in graph.steps}
    leaving = [edge for edge in graph.edges if edge.from_step == step]
    pooled = any(shape.pool for shape in graph.steps if shape.name == step)
    if pooled or len(leaving) > 1:
        return True
    return any(edge.kind == "expand" or queues[edge.to_step] != queues[step] for edge in leaving)


def _list_reads(graph: Graph, step: str) -> dict[str, EdgeKind]:
    """Return the steps with results that a claim of this step carries, in order, each with the kind of its edge."""
    reading = [edge for edge in graph.edges if edge.to_step == step and edge.position is not None]
    return {edge.from_step: edge.kind for edge in sorted(reading, key=lambda edge: edge.position or 0)}


Reader = Callable[[Claim], Any]


def _build_reader(pipeline: Pipeline, binding: Binding, reads: dict[str, EdgeKind]) -> Reader:
    match binding.kind:
        case "input":
            return _build_input_reader(pipeline, binding.name)
        case "item":
            return _build_item_reader(binding)
        case "step" | "items":
            if binding.name not in reads:
                return _build_absent_reader(binding)
            if (binding.kind == "items") != (reads[binding.name] == "join"):
                raise DefinitionError(
                    f"runs of this version pass {binding.name!r} in another form than the current code takes"
                )
            read = _build_items_reader if binding.kind == "items" else _build_result_reader
            return read(binding, list(reads).index(binding.name))


def _build_absent_reader(binding: Binding) -> Reader:
    if not binding.optional:
        raise DefinitionError(f"runs of this version have no result of {binding.name!r}, which the current code takes")
    return lambda _: _MISSING


def _build_input_reader(pipeline: Pipeline, field: str) -> Reader:
    model = pipeline.inputs
    assert model is not None
    validate = model.__pydantic_validator__.validate_json
    return lambda claim: getattr(validate(claim.run_input or "{}"), field)


def _build_item_reader(binding: Binding) -> Reader:
    decode = get_codec(binding.annotation).decode
    if binding.part is None:
        return lambda claim: decode(claim.item_value or "null")
    parts = msgspec.json.Decoder(list[msgspec.Raw])
    part = binding.part
    return lambda claim: decode(bytes(parts.decode(claim.item_value or "[]")[part]).decode())


def _build_result_reader(binding: Binding, index: int) -> Reader:
    decode = get_codec(binding.annotation).decode

    def read(claim: Claim) -> Any:
        result = claim.results[index]
        return _MISSING if result is None else decode(result)

    return read


_ItemRow = tuple[str, str, msgspec.Raw, str | None]


def _build_items_reader(binding: Binding, index: int) -> Reader:
    rows_of = msgspec.json.Decoder(list[_ItemRow])
    decode = get_codec((get_args(binding.annotation) or (Any,))[0]).decode

    def read(claim: Claim) -> Any:
        result = claim.results[index]
        if result is None:
            return _MISSING
        if result == TOO_LARGE:
            raise ValueError(
                f"the results of all items of {binding.name!r} are over 100 MB together, too much for one join: "
                "keep large data in files and return their locations"
            )
        rows = rows_of.decode(result)
        good = [(key, decode(bytes(output).decode())) for key, state, output, _ in rows if state == "succeeded"]
        failed = [
            FailedItem(key, code or state.upper(), state)  # type: ignore[arg-type]
            for key, state, _, code in rows
            if state != "succeeded"
        ]
        return Items([value for _, value in good], keys=[key for key, _ in good], failures=failed)

    return read


def _count_items(items: Items[Any]) -> ItemCounts:
    skipped = sum(failed.state == "skipped" and failed.code == SKIPPED for failed in items.failures)
    return ItemCounts(items.total, failed=len(items.failures) - skipped, skipped=skipped)


def _build_item_encoder(returns: Any) -> Callable[[Any], str]:
    """Encode items by the annotated type of the source, so the step that takes them reads the same type."""
    elements = [part for part in get_args(returns) if part is not ...]
    return get_codec(elements[0]).encode if len(elements) == 1 and elements[0] is not Any else _encode_untyped


def _encode_untyped(value: Any) -> str:
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json(by_alias=True, round_trip=True))
    try:
        return encode_any(value)
    except TypeError:
        return get_codec(type(value)).encode(value)
