"""The `Pipeline` class, with which users define steps and reviews."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import isclass, isfunction, signature
from types import MappingProxyType
from typing import Any, Never, TypeVar, Unpack, get_args, get_origin, overload

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from retoma.define.bindings import Scope, bind_parameters, check_sources
from retoma.define.codec import get_codec
from retoma.define.compiler import compile_graph
from retoma.define.definition_errors import Location, check_name, list_keyword_options, quote_names, suggest_name
from retoma.define.durations import Duration, minutes
from retoma.define.feedback import build_feedback_check
from retoma.define.graph import Graph
from retoma.define.internal_steps import build_input_step, build_product_step
from retoma.define.items import Items
from retoma.define.keys import ItemSet, Keys, parse_keys
from retoma.define.options import (
    EachOptions,
    StepOptions,
    StepReference,
    build_policy,
    check_estimated_cost,
    check_options,
    parse_duration,
    parse_optional_duration,
)
from retoma.define.pool import Pool
from retoma.define.rejection import Rejection
from retoma.define.retry import DEFAULT_RETRY, Retry
from retoma.define.review import DEFAULT_MAX_REVISIONS, Approval, Feedback, OnExpiry, ReviewPolicy
from retoma.define.signature import read_condition_parameters, read_signature
from retoma.define.step import DEFAULT_TIMEOUT, Binding, Policy, Resource, Step, source_name
from retoma.define.title import Title, check_title, format_title

Input = BaseModel | Mapping[str, Any] | None
"""The input of a run, as callers pass it."""

DEFAULT_STUCK_AFTER = minutes(5)
DEFAULT_RESUMES = 3
MAX_RESUMES = 100
Function = TypeVar("Function", bound=Callable[..., Any])


class Pipeline:
    """Named steps and how data flows between them.

    `inputs` is the model of a run's input. `queue`, `retry` and `timeout` are defaults for its steps. The decorators
    return the function unchanged. `title` is what people call a run: a format string over the fields of its inputs,
    such as `"{topic}"`, or a function of the inputs.

    A run without progress for `stuck_after` is stuck. It is resumed automatically up to `resumes` times without
    progress, and then fails.

    `tenant_field` is the field of the inputs that names the tenant of a run. A run of another tenant is refused.

    An ended run is removed after `retention`, counted from its end and that of its last delivery. Without it, the
    settings of the installation apply, and the rules that its operators set apply first in either case.

    If a run is rejected, a run of `on_rejected` starts, for example to clean up. Its input is a `Rejection`.
    """

    def __init__(
        self,
        name: str,
        inputs: type[BaseModel] | None = None,
        *,
        title: Title | None = None,
        tenant_field: str | None = None,
        queue: str = "default",
        retry: Retry = DEFAULT_RETRY,
        timeout: Duration = DEFAULT_TIMEOUT,
        stuck_after: Duration = DEFAULT_STUCK_AFTER,
        resumes: int = DEFAULT_RESUMES,
        on_rejected: Pipeline | None = None,
        retention: Duration | None = None,
        **unknown: Never,
    ) -> None:
        location = Location(name)
        for option in unknown:
            known = ("inputs", *list_keyword_options(Pipeline.__init__))
            raise location.error(f"Pipeline has no option {option!r}; {suggest_name(option, known)}")
        check_name("pipeline", name, location, extra_characters="-.")
        self.name = name
        self.inputs = inputs
        self.stuck_after = parse_duration("stuck_after", stuck_after, location)
        self.resumes = _check_resumes(resumes, location)
        self.retention = parse_optional_duration("retention", retention, location)
        self.on_rejected = _check_on_rejected(on_rejected, location)
        self._fields = _read_annotations(inputs, location)
        self.tenant_field = _check_tenant_field(tenant_field, self._fields, location)
        self._title = check_title(title, inputs, location)
        self._defaults = build_policy({"queue": queue, "retry": retry, "timeout": timeout}, Policy(), location)
        self._steps: dict[str, Step] = {}
        self._item_sets: dict[str, ItemSet] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        self._graph: Graph | None = None

    @overload
    def step(self, function: Function, /) -> Function: ...
    @overload
    def step(self, /, **options: Unpack[StepOptions]) -> Callable[[Function], Function]: ...
    def step(self, function: Any = None, /, **options: Unpack[StepOptions]) -> Any:
        """Define a step that runs once per run. Its data parameters name inputs and steps defined above it."""

        def define(function: Function) -> Function:
            self._define_plain(function, options)
            return function

        return define if function is None else define(function)

    def each(
        self, *sources: StepReference, key: Keys = None, **options: Unpack[EachOptions]
    ) -> Callable[[Function], Function]:
        """Define a step that runs once for each element of a list, or for each combination of several lists.

        A source is a plain step, or the name of an input that is a list. `key` names the field that identifies an
        element, with one entry per source if there are several. Without it, a str or int is its own key, and any
        other element is identified by its position.
        """
        self._check_has_sources(sources)

        def define(function: Function) -> Function:
            self._define_each(function, sources, key, options)
            return function

        return define

    def review(
        self,
        name: str,
        *,
        of: StepReference | Sequence[StepReference],
        form: type[BaseModel] | None = None,
        send_back_to: StepReference | Sequence[StepReference] | None = (),
        feedback_form: type[BaseModel] | None = None,
        when: Callable[..., bool] | None = None,
        due: Duration | None = None,
        remind: Duration | None = None,
        escalate: Duration | None = None,
        escalate_to: str | None = None,
        expires: Duration | None = None,
        on_expiry: OnExpiry = "rejected",
        rejection_ends_run: bool = False,
        assignee: str | None = None,
        max_revisions: int = DEFAULT_MAX_REVISIONS,
        retired: bool = False,
        **unknown: Never,
    ) -> str:
        """Define a step that a person does: its result is the value that they approve. Return its name.

        `of` is the step under review, or several steps. Without a `form` the result is that step's result, unchanged or
        edited; with a form it is the submitted form. A review of an `each` step opens one review per item. `when`
        receives the results of `of` by name and returns whether a person is needed; if not, the result passes through.
        A rejection ends the run. A rejected item only fails, and the others continue, unless `rejection_ends_run`.

        A reviewer can send work back to `send_back_to` (default: `of`; `None`: it can only be approved or rejected), at
        most `max_revisions` times, with the values of the `feedback_form`, in which every field must be optional. The
        times count from when the review opened. The deadline is `due`; at `remind` an event reports that the review is
        still open; at `escalate` it is assigned to `escalate_to`; at `expires` an open review is decided as
        `on_expiry`. A `retired` review is only part of runs that were started before it was retired.
        """
        location = Location(self.name, name)
        for option in unknown:
            raise location.error(
                f"there is no option {option!r}; {suggest_name(option, list_keyword_options(Pipeline.review))}"
            )
        check_name("step", name, location)
        self._check_name_is_free(name, location)
        references = (of,) if isinstance(of, str) or callable(of) else tuple(of)
        subjects = [self._find_step(reference, location, "a review is of") for reference in references]
        policy = ReviewPolicy(
            subject=subjects[0].name if len(subjects) == 1 else None,
            form=form or subjects[0].returns,
            has_form=form is not None,
            back_to=self._resolve_send_back_to(send_back_to, subjects, location),
            max_revisions=_check_max_revisions(max_revisions, location),
            due=parse_optional_duration("due", due, location),
            remind=parse_optional_duration("remind", remind, location),
            escalate=parse_optional_duration("escalate", escalate, location),
            escalate_to=escalate_to,
            expires=parse_optional_duration("expires", expires, location),
            on_expiry=on_expiry,
            rejection_ends_run=rejection_ends_run,
            assignee=assignee,
            feedback_form=feedback_form,
        )
        _check_review(policy, subjects, location)
        if policy.has_form and (when is not None or (policy.expires and on_expiry == "approved")):
            _check_has_defaults(policy.form, "it may be approved without a person, but its form", location)
        if feedback_form is not None:
            _check_has_defaults(
                feedback_form, "work may be sent back with notes alone, but its feedback_form", location
            )
            if taken := sorted(feedback_form.model_fields.keys() & Feedback.__dataclass_fields__.keys()):
                raise location.error(
                    f"feedback already has {quote_names(taken)}: use another name in the feedback_form"
                )
        self._register(replace(self._build_review_step(name, policy, subjects, when, location), retired=retired))
        return name

    def _build_review_step(
        self,
        name: str,
        policy: ReviewPolicy,
        subjects: Sequence[Step],
        when: Callable[..., bool] | None,
        location: Location,
    ) -> Step:
        return Step(
            pipeline=self.name,
            name=name,
            function=Approval(policy),
            bindings=tuple(
                Binding(step.name, "step", step.name, position, step.returns) for position, step in enumerate(subjects)
            ),
            resources=(),
            returns=policy.form,
            policy=replace(self._defaults, on_failure="continue" if subjects[0].each else "stop"),
            sources=subjects[0].sources,
            key=subjects[0].key,
            when=when,
            when_parameters=() if when is None else _check_when(when, subjects, location),
            review=policy,
        )

    def group(self, name: str, steps: Sequence[StepReference]) -> None:
        """Name steps that people rerun together, such as all pictures."""
        location = Location(self.name, name)
        self._groups[name] = tuple(self._find_step(step, location, "the group has").name for step in steps)

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Return the groups of steps that are rerun together, by name."""
        return MappingProxyType(self._groups)

    @property
    def steps(self) -> Mapping[str, Step]:
        """Return all steps by name in definition order, including internal ones."""
        return MappingProxyType(self._steps)

    @property
    def item_sets(self) -> Mapping[str, ItemSet]:
        """Return the fan-outs, by the name of the step that returns the items."""
        return MappingProxyType(self._item_sets)

    @property
    def has_title(self) -> bool:
        return self._title is not None

    def format_title(self, inputs: BaseModel | None) -> str | None:
        """Return the title of a run with these inputs. Raise what the title's function raises."""
        return format_title(self._title, inputs)

    def validate_result(self, step: str, text: str) -> str:
        """Return a person's result as the step would return it. Raise ValueError or TypeError if it is not valid."""
        codec = get_codec(self._steps[step].returns)
        value = codec.decode(text)
        for item_set in self._item_sets.values():
            item_set.check_source(step, value)
        return codec.encode(value)

    @property
    def pools(self) -> list[Pool]:
        """Return the pools that its steps take slots from."""
        return list(dict.fromkeys(step.policy.pool for step in self._steps.values() if step.policy.pool))

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            self._graph = compile_graph(self.name, self._list_current_steps())
        return self._graph

    def _list_current_steps(self) -> dict[str, Step]:
        """Return the steps of new runs: without retired steps and without sources that only those use."""
        current = {name for name, step in self._steps.items() if not step.retired and not step.internal}
        for name in sorted(current):
            step = self._steps[name]
            for dependency in [*(binding.name for binding in step.bindings if binding.kind != "input"), *step.after]:
                if dependency in self._steps and self._steps[dependency].retired:
                    raise Location(self.name, name).error(
                        f"it depends on {dependency!r}, which is retired and not part of new runs; "
                        "retire this step too, or depend on another"
                    )
        needed = self._include_ancestors(current)
        return {name: step for name, step in self._steps.items() if name in needed}

    def check(self) -> None:
        """Raise DefinitionError if the pipeline as a whole is not valid."""
        _ = self.graph
        for step in self._steps.values():
            _check_types(step)

    def _define_plain(self, function: Callable[..., Any], options: StepOptions) -> None:
        location = self._locate(function)
        check_options(options, StepOptions, location)
        if "continues" in options:
            raise location.error("continues= is only for each steps, whose items pass from step to step")
        scope = Scope(location, self._fields, self._list_visible_steps())
        self._register(self._build_step(function, options, scope, self._defaults))

    def _define_each(
        self,
        function: Callable[..., Any],
        sources: tuple[StepReference, ...],
        key: Keys,
        options: EachOptions,
    ) -> None:
        location = self._locate(function)
        check_options(options, EachOptions, location)
        scope = Scope(location, self._fields, self._list_visible_steps(), self._resolve_sources(sources, location))
        check_sources(scope)
        step = self._build_step(function, options, scope, replace(self._defaults, on_failure="continue"))
        if not step.bindings and not step.after:
            raise location.error("it takes neither its item nor anything else, so it would do the same for every item")
        continues = self._resolve_continues(options.get("continues"), step, location)
        step = replace(step, key=parse_keys(key, scope.element_types, location), continues=continues)
        self._check_same_key(step, location)
        self._register(*self._build_missing_sources(scope.sources), step)

    def _build_step(
        self, function: Callable[..., Any], options: Mapping[str, Any], scope: Scope, defaults: Policy
    ) -> Step:
        location = scope.location
        read = read_signature(function, location)
        when = options.get("when")
        estimated_cost = check_estimated_cost(options.get("estimated_cost"), location)
        policy = build_policy(options, defaults, location)
        if policy.isolation is not None:
            _check_isolated(function, read.resources, location)
        return Step(
            pipeline=self.name,
            name=function.__name__,
            function=function,
            bindings=bind_parameters(read.data, scope),
            resources=read.resources,
            returns=read.returns,
            policy=policy,
            sources=scope.sources,
            after=self._resolve_after(options.get("after", ()), location),
            when=when,
            when_parameters=() if when is None else read_condition_parameters(when, read.data, location),
            proceed_when=options.get("proceed_when"),
            retired=bool(options.get("retired", False)),
            feedback=build_feedback_check(options.get("feedback"), self._list_readable(), location),
            estimated_cost=estimated_cost,
            estimate_parameters=read_condition_parameters(estimated_cost, read.data, location, "estimated_cost=")
            if callable(estimated_cost)
            else (),
        )

    def _register(self, *steps: Step) -> None:
        for step in steps:
            self._steps[step.name] = step
            if step.source and (step.key or step.source not in self._item_sets):
                keys = step.key or (None,) * len(step.sources)
                self._item_sets[step.source] = ItemSet(step.source, step.sources, keys)
        self._graph = None

    def _build_missing_sources(self, sources: tuple[str, ...]) -> Iterator[Step]:
        """Yield the internal steps that are missing for an each step to have one plain step as its source."""
        for name in sources:
            if name in self._fields and name not in self._steps:
                yield build_input_step(self.name, name, self._fields[name], self._defaults)
        if len(sources) > 1 and source_name(sources) not in self._steps:
            yield build_product_step(self.name, sources, self._defaults)

    def _list_readable(self) -> dict[str, Any]:
        """Return the inputs and plain steps above, which a feedback check may read."""
        return self._fields | {name: step for name, step in self._list_visible_steps().items() if not step.each}

    def _list_visible_steps(self) -> dict[str, Step]:
        return {name: step for name, step in self._steps.items() if not step.internal}

    def _locate(self, function: object) -> Location:
        """Return the location of a new step. Raise DefinitionError if it is not a function or its name is taken."""
        if not isfunction(function):
            raise Location(self.name).error(f"{function!r} cannot be a step; a step must be a function")
        location = Location(self.name, function.__name__)
        check_name("step", function.__name__, location)
        self._check_name_is_free(function.__name__, location)
        return location

    def _check_name_is_free(self, name: str, location: Location) -> None:
        if name in self._fields:
            raise location.error(f"{name!r} is already an input; choose another name for the step")
        if name in self._steps:
            raise location.error("a step with this name already exists")

    def _find_step(self, reference: StepReference, location: Location, verb: str) -> Step:
        name, visible = self._resolve_name(reference, location, verb), self._list_visible_steps()
        if name not in visible:
            raise location.error(f"{verb} {name!r}, which is not a step above; {suggest_name(name, visible)}")
        return visible[name]

    def _resolve_send_back_to(self, references: Any, subjects: Sequence[Step], location: Location) -> tuple[str, ...]:
        if references is None:
            return ()
        listed = (references,) if isinstance(references, str) or callable(references) else tuple(references)
        names = tuple(self._resolve_name(reference, location, "send_back_to= names") for reference in listed)
        above = self._include_ancestors({step.name for step in subjects})
        for name in names:
            if name not in above:
                raise location.error(
                    f"send_back_to= names {name!r}, which nothing under review depends on; {suggest_name(name, above)}"
                )
        return names or tuple(step.name for step in subjects)

    def _include_ancestors(self, names: set[str]) -> set[str]:
        """Return these steps and all steps that they depend on."""
        found, left = set(names), list(names)
        while left:
            step = self._steps[left.pop()]
            dependencies = {binding.name for binding in step.bindings if binding.kind != "input"} | set(step.after)
            new = (dependencies | ({step.source} if step.source else set())) & self._steps.keys() - found
            found |= new
            left += new
        return found

    def _check_has_sources(self, sources: tuple[StepReference, ...]) -> None:
        # `@pipeline.each` without parentheses would silently replace the function with a decorator.
        bare = [source for source in sources if callable(source) and not self._defines(source)]
        if len(bare) == len(sources):
            name = getattr(bare[0], "__name__", None) if bare else None
            raise Location(self.name, name).error("each needs a step defined above as its source: @...each(step)")

    def _resolve_sources(self, sources: tuple[StepReference, ...], location: Location) -> tuple[str, ...]:
        names = tuple(self._resolve_name(source, location, "each goes over") for source in sources)
        known = [*self._fields, *self._list_visible_steps()]
        for name in names:
            if name not in known:
                raise location.error(
                    f"each goes over {name!r}, which is neither an input nor a step above; {suggest_name(name, known)}"
                )
            if names.count(name) > 1:
                raise location.error(f"each goes over {name!r} twice; return a list of pairs from a plain step instead")
        return names

    def _resolve_after(self, references: Any, location: Location) -> tuple[str, ...]:
        listed = [references] if isinstance(references, str) or callable(references) else references
        names = tuple(self._resolve_name(reference, location, "after= names") for reference in listed)
        if location.step in names:
            raise location.error("after= names the step itself")
        return names

    def _resolve_continues(self, reference: StepReference | None, step: Step, location: Location) -> tuple[str, ...]:
        """Return the step that this one continues, followed by the steps that it continues in turn."""
        if reference is None:
            return ()
        name = self._resolve_name(reference, location, "continues= names")
        taken = [binding.name for binding in step.bindings if binding.kind == "step"]
        earlier = self._steps.get(name)
        if earlier is None or earlier.source != step.source or name not in (*taken, *step.after):
            raise location.error(
                f"continues= names {name!r}; pass an each step over the same items whose result this one takes"
            )
        if earlier.policy.work_limit != step.policy.work_limit:
            raise location.error(f"it continues {name!r}, so both need the same work_limit=")
        return (name, *earlier.continues)

    def _resolve_name(self, reference: StepReference, location: Location, verb: str) -> str:
        if isinstance(reference, str):
            return reference
        name = getattr(reference, "__name__", repr(reference))
        if not self._defines(reference):
            raise location.error(
                f"{verb} {name!r}, which is not a step of this pipeline; "
                f"{suggest_name(name, self._list_visible_steps())}"
            )
        return name

    def _defines(self, function: StepReference) -> bool:
        return any(step.function is function for step in self._steps.values())

    def _check_same_key(self, step: Step, location: Location) -> None:
        for other in self._steps.values():
            if step.key and other.key and other.source == step.source and other.key != step.key:
                raise location.error(
                    f"its key= differs from that of {other.name!r}, which goes over the same items; set it only once"
                )


def _check_on_rejected(pipeline: Any, location: Location) -> Pipeline | None:
    if pipeline is not None and not isinstance(pipeline, Pipeline):
        raise location.error(f"on_rejected= is {pipeline!r}; pass a pipeline that is defined above it")
    if pipeline is not None and pipeline.inputs is not Rejection:
        raise location.error(
            f"on_rejected= is {pipeline.name!r}, whose input is not a Rejection: define it as "
            f"Pipeline({pipeline.name!r}, Rejection), with `from retoma.reviews import Rejection`"
        )
    if pipeline is not None and pipeline.has_title:
        raise location.error(
            f"on_rejected= is {pipeline.name!r}, which has a title: its runs get that of the rejected run"
        )
    return pipeline


def _check_tenant_field(name: str | None, fields: Mapping[str, Any], location: Location) -> str | None:
    if name is not None and name not in fields:
        raise location.error(f"tenant_field= is {name!r}, which is not an input; {suggest_name(name, fields)}")
    return name


def _check_resumes(value: int, location: Location) -> int:
    if not isinstance(value, int) or not 0 <= value <= MAX_RESUMES:
        raise location.error(f"resumes= is {value!r}; pass a whole number from 0 to {MAX_RESUMES}")
    return value


def _check_when(when: Callable[..., bool], subjects: Sequence[Step], location: Location) -> tuple[str, ...]:
    names, known = tuple(signature(when).parameters), [step.name for step in subjects]
    for name in names:
        if name not in known:
            raise location.error(
                f"when= takes {name!r}, but the review is of {quote_names(known)}; {suggest_name(name, known)}"
            )
    return names


def _check_max_revisions(value: int, location: Location) -> int:
    if not isinstance(value, int) or value < 0:
        raise location.error(f"max_revisions= is {value!r}; pass a whole number, 0 if work may never be sent back")
    return value


def _check_review(policy: ReviewPolicy, subjects: Sequence[Step], location: Location) -> None:
    if len(subjects) > 1 and not policy.has_form:
        raise location.error("a review of several steps needs form=: its result is what a person fills in")
    if len(subjects) > 1 and any(step.each for step in subjects):
        raise location.error("a review of several steps cannot include an each step: review that one separately")
    if policy.on_expiry not in get_args(OnExpiry):
        raise location.error(f"on_expiry= is {policy.on_expiry!r}; pass one of {quote_names(get_args(OnExpiry))}")
    if policy.rejection_ends_run and not subjects[0].each:
        raise location.error(
            "rejection_ends_run= is only for a review of an each step; any other rejection always ends the run"
        )
    if (policy.escalate is None) != (policy.escalate_to is None):
        raise location.error("escalate= and escalate_to= must be set together: when, and to whom")


def _check_has_defaults(form: type[BaseModel], reason: str, location: Location) -> None:
    missing = [name for name, field in form.model_fields.items() if field.is_required()]
    if missing:
        raise location.error(f"{reason} requires {quote_names(missing)}")


def _read_annotations(inputs: type[BaseModel] | None, location: Location) -> dict[str, Any]:
    if inputs is None:
        return {}
    if not isclass(inputs) or not issubclass(inputs, BaseModel):
        raise location.error(f"inputs= is {inputs!r}; pass a subclass of pydantic's BaseModel")
    return {name: field.annotation for name, field in inputs.model_fields.items()}


def _check_isolated(function: Callable[..., Any], resources: Sequence[Resource], location: Location) -> None:
    for resource in resources:
        if resource.name != "ctx":
            raise location.error(
                f"an isolated step cannot take the resource {resource.name!r}: its child process has no access to the "
                "worker's environment and connections; split the step in two"
            )
    if "<locals>" in function.__qualname__:
        raise location.error(
            "the function of an isolated step must be at the top of its module, where the child process can import it"
        )


def _check_types(step: Step) -> None:
    """Raise DefinitionError if a value between steps has a type that cannot be JSON."""
    location = Location(step.pipeline, step.name)
    for what, annotation in [("its result", step.returns), *((b.parameter, b.annotation) for b in step.bindings)]:
        try:
            get_codec(get_args(annotation)[0] if get_origin(annotation) is Items else annotation)
        except (PydanticUserError, IndexError) as error:
            message = str(error).partition("\n")[0]
            raise location.error(f"{what} is {annotation!r}, which cannot be JSON: {message}") from None
