"""A pipeline: what users write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
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
from retoma.define.options import EachOptions, StepOptions, StepReference, build_policy, check_options, parse_duration
from retoma.define.pool import Pool
from retoma.define.retry import DEFAULT_RETRY, Retry
from retoma.define.review import DEFAULT_MAX_REVISIONS, Approval, Feedback, OnExpiry, ReviewPolicy
from retoma.define.signature import read_condition_parameters, read_signature
from retoma.define.step import DEFAULT_TIMEOUT, Binding, Policy, Resource, Step, source_name

DEFAULT_STUCK_AFTER = minutes(5)
DEFAULT_RESUMES = 3
MAX_RESUMES = 100
_OPTIONS = ("inputs", "queue", "retry", "timeout", "stuck_after", "resumes")
Function = TypeVar("Function", bound=Callable[..., Any])


class Pipeline:
    """Named steps and how data flows between them.

    `inputs` is the model of what a run starts with. `queue`, `retry` and `timeout` are for the steps that do
    not give their own. The decorators return the function as it is.

    A run that should go on and does not for `stuck_after` is stuck. It is resumed by itself up to `resumes` times
    without progress, and then fails.
    """

    def __init__(
        self,
        name: str,
        inputs: type[BaseModel] | None = None,
        *,
        queue: str = "default",
        retry: Retry = DEFAULT_RETRY,
        timeout: Duration = DEFAULT_TIMEOUT,
        stuck_after: Duration = DEFAULT_STUCK_AFTER,
        resumes: int = DEFAULT_RESUMES,
        **unknown: Never,
    ) -> None:
        place = Location(name)
        for option in unknown:
            raise place.error(f"Pipeline has no option {option!r}; {suggest_name(option, _OPTIONS)}")
        check_name("pipeline", name, place, extra_characters="-.")
        self.name = name
        self.inputs = inputs
        self.stuck_after = parse_duration("stuck_after", stuck_after, place)
        self.resumes = _check_resumes(resumes, place)
        self._fields = _read_annotations(inputs, place)
        self._defaults = build_policy({"queue": queue, "retry": retry, "timeout": timeout}, Policy(), place)
        self._steps: dict[str, Step] = {}
        self._item_sets: dict[str, ItemSet] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        self._graph: Graph | None = None

    @overload
    def step(self, function: Function, /) -> Function: ...
    @overload
    def step(self, /, **options: Unpack[StepOptions]) -> Callable[[Function], Function]: ...
    def step(self, function: Any = None, /, **options: Unpack[StepOptions]) -> Any:
        """Define a step that runs once in a run. Its data parameters name inputs and steps above it."""

        def define(function: Function) -> Function:
            self._define_plain(function, options)
            return function

        return define if function is None else define(function)

    def each(
        self, *sources: StepReference, key: Keys = None, **options: Unpack[EachOptions]
    ) -> Callable[[Function], Function]:
        """Define a step that runs once for each element of a list, or for each combination of several lists.

        A source is a plain step, or the name of an input that is a list. `key` names what identifies an
        element, with one entry for each source if there are several; without it a str or int is its own key,
        and anything else has its position.
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
        send_back_to: StepReference | Sequence[StepReference] = (),
        feedback_form: type[BaseModel] | None = None,
        when: Callable[..., bool] | None = None,
        due: Duration | None = None,
        remind: Duration | None = None,
        escalate: Duration | None = None,
        escalate_to: str | None = None,
        expires: Duration | None = None,
        on_expiry: OnExpiry = "rejected",
        assignee: str | None = None,
        max_revisions: int = DEFAULT_MAX_REVISIONS,
        retired: bool = False,
        **unknown: Never,
    ) -> str:
        """Define a step that a person does: its result is what they approve. Gives its name.

        `of` is what they look at: a step, or several. Without a `form` the result is that step's, as it was or as they
        edited it; with one it is what they filled in. Of an `each` step every item has its own review. `when` takes
        what `of` gave, by name, and says whether a person is needed at all; otherwise the result goes through.

        Work may be sent back to `send_back_to` (else to what it is `of`), at most `most_revisions` times, with what a
        person filled into the `feedback_form`, of which every field may be left out. The times are
        counted from its opening: it should be decided by `due`; at `remind` an event says that it still waits, at
        `escalate` it becomes `escalate_to`'s, and what nobody has decided by `expires` counts as `on_expiry`.
        A `retired` review is asked only in runs that were started while it was not.
        """
        place = Location(self.name, name)
        for option in unknown:
            raise place.error(
                f"there is no option {option!r}; {suggest_name(option, list_keyword_options(Pipeline.review))}"
            )
        check_name("step", name, place)
        self._check_name_is_free(name, place)
        references = (of,) if isinstance(of, str) or callable(of) else tuple(of)
        subjects = [self._find_subject(reference, place) for reference in references]
        policy = ReviewPolicy(
            subject=subjects[0].name if len(subjects) == 1 else None,
            form=form or subjects[0].returns,
            has_form=form is not None,
            back_to=self._resolve_send_back_to(send_back_to, subjects, place),
            queue=self._defaults.queue,
            max_revisions=_check_max_revisions(max_revisions, place),
            due=_parse_optional_duration("due", due, place),
            remind=_parse_optional_duration("remind", remind, place),
            escalate=_parse_optional_duration("escalate", escalate, place),
            escalate_to=escalate_to,
            expires=_parse_optional_duration("expires", expires, place),
            on_expiry=on_expiry,
            assignee=assignee,
            feedback_form=feedback_form,
        )
        _check_review(policy, subjects, place)
        if policy.has_form and (when is not None or (policy.expires and on_expiry == "approved")):
            _check_has_defaults(policy.form, "without a person nothing can be approved: its form", place)
        if feedback_form is not None:
            _check_has_defaults(feedback_form, "work may be sent back with notes alone: its feedback_form", place)
            if taken := sorted(feedback_form.model_fields.keys() & Feedback.__dataclass_fields__.keys()):
                raise place.error(
                    f"feedback has {quote_names(taken)} of its own: call it otherwise in the feedback_form"
                )
        self._register(replace(self._build_review_step(name, policy, subjects, when, place), retired=retired))
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
        """Name steps that people have done again together, such as all pictures."""
        place = Location(self.name, name)
        names = tuple(self._resolve_name(step, place, "the group has") for step in steps)
        for step in names:
            if step not in self._steps:
                raise place.error(f"the group has {step!r}, which is no step above; {suggest_name(step, self._steps)}")
        self._groups[name] = names

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """What is done again together, by name."""
        return MappingProxyType(self._groups)

    @property
    def steps(self) -> Mapping[str, Step]:
        """All steps by name, in the order of their definition, hidden ones included."""
        return MappingProxyType(self._steps)

    @property
    def item_sets(self) -> Mapping[str, ItemSet]:
        """What fans out, by the name of the step that gives the items."""
        return MappingProxyType(self._item_sets)

    def validate_result(self, step: str, text: str) -> str:
        """A person's result as the step would give it. Raises ValueError or TypeError with a sentence."""
        codec = get_codec(self._steps[step].returns)
        value = codec.decode(text)
        for item_set in self._item_sets.values():
            item_set.check_source(step, value)
        return codec.encode(value)

    @property
    def pools(self) -> list[Pool]:
        """The pools that its steps take slots of."""
        return list(dict.fromkeys(step.policy.pool for step in self._steps.values() if step.policy.pool))

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            self._graph = compile_graph(self.name, self._list_current_steps())
        return self._graph

    def _list_current_steps(self) -> dict[str, Step]:
        """Return the steps of new runs: without retired ones, and without what only those go over."""
        current = {name for name, step in self._steps.items() if not step.retired and not step.internal}
        for name in sorted(current):
            step = self._steps[name]
            for need in [*(binding.name for binding in step.bindings if binding.kind != "input"), *step.after]:
                if need in self._steps and self._steps[need].retired:
                    raise Location(self.name, name).error(
                        f"it needs {need!r}, which is retired and so not in new runs; retire it too, or need another"
                    )
        needed = self._include_ancestors(current)
        return {name: step for name, step in self._steps.items() if name in needed}

    def check(self) -> None:
        """Raise a DefinitionError if the pipeline as a whole cannot work."""
        _ = self.graph
        for step in self._steps.values():
            _check_types(step)

    def _define_plain(self, function: Callable[..., Any], options: StepOptions) -> None:
        place = self._locate(function)
        check_options(options, StepOptions, place)
        if "continues" in options:
            raise place.error("continues= is for each steps, whose items are worked on step by step")
        scope = Scope(place, self._fields, self._list_visible_steps())
        self._register(self._build_step(function, options, scope, self._defaults))

    def _define_each(
        self,
        function: Callable[..., Any],
        sources: tuple[StepReference, ...],
        key: Keys,
        options: EachOptions,
    ) -> None:
        place = self._locate(function)
        check_options(options, EachOptions, place)
        scope = Scope(place, self._fields, self._list_visible_steps(), self._resolve_sources(sources, place))
        check_sources(scope)
        step = self._build_step(function, options, scope, replace(self._defaults, on_failure="continue"))
        _check_has_parameters(step, place)
        continues = self._resolve_continues(options.get("continues"), step, place)
        step = replace(step, key=parse_keys(key, scope.element_types, place), continues=continues)
        self._check_same_key(step, place)
        self._register(*self._build_missing_sources(scope.sources), step)

    def _build_step(
        self, function: Callable[..., Any], options: Mapping[str, Any], scope: Scope, defaults: Policy
    ) -> Step:
        place = scope.location
        read = read_signature(function, place)
        when = options.get("when")
        policy = build_policy(options, defaults, place)
        if policy.isolation is not None:
            _check_isolated(function, read.resources, place)
        return Step(
            pipeline=self.name,
            name=function.__name__,
            function=function,
            bindings=bind_parameters(read.data, scope),
            resources=read.resources,
            returns=read.returns,
            policy=policy,
            sources=scope.sources,
            after=self._resolve_after(options.get("after", ()), place),
            when=when,
            when_parameters=() if when is None else read_condition_parameters(when, read.data, place),
            proceed_when=options.get("proceed_when"),
            retired=bool(options.get("retired", False)),
            feedback=build_feedback_check(options.get("feedback"), self._list_readable(), place),
        )

    def _register(self, *steps: Step) -> None:
        for step in steps:
            self._steps[step.name] = step
            if step.source and (step.key or step.source not in self._item_sets):
                keys = step.key or (None,) * len(step.sources)
                self._item_sets[step.source] = ItemSet(step.source, step.sources, keys)
        self._graph = None

    def _build_missing_sources(self, sources: tuple[str, ...]) -> Iterator[Step]:
        """The hidden steps that must be there for an each step to have one plain step as its source."""
        for name in sources:
            if name in self._fields and name not in self._steps:
                yield build_input_step(self.name, name, self._fields[name], self._defaults)
        if len(sources) > 1 and source_name(sources) not in self._steps:
            yield build_product_step(self.name, sources, self._defaults)

    def _list_readable(self) -> dict[str, Any]:
        """What a check of feedback may read: the inputs, and the plain steps above."""
        return self._fields | {name: step for name, step in self._list_visible_steps().items() if not step.each}

    def _list_visible_steps(self) -> dict[str, Step]:
        return {name: step for name, step in self._steps.items() if not step.internal}

    def _locate(self, function: object) -> Location:
        """Where `function` is being defined. It must be one, and its name must be free."""
        if not isfunction(function):
            raise Location(self.name).error(f"{function!r} cannot be a step; a step is a function")
        place = Location(self.name, function.__name__)
        check_name("step", function.__name__, place)
        self._check_name_is_free(function.__name__, place)
        return place

    def _check_name_is_free(self, name: str, location: Location) -> None:
        if name in self._fields:
            raise location.error(f"{name!r} is an input already; give the step another name")
        if name in self._steps:
            raise location.error("there is a step of that name already")

    def _find_subject(self, reference: StepReference, location: Location) -> Step:
        name = self._resolve_name(reference, location, "a review is of")
        if name not in self._list_visible_steps():
            raise location.error(
                f"a review is of {name!r}, which is no step above; {suggest_name(name, self._list_visible_steps())}"
            )
        return self._steps[name]

    def _resolve_send_back_to(self, references: Any, subjects: Sequence[Step], location: Location) -> tuple[str, ...]:
        listed = (references,) if isinstance(references, str) or callable(references) else tuple(references)
        names = tuple(self._resolve_name(reference, location, "send_back_to= names") for reference in listed)
        above = self._include_ancestors({step.name for step in subjects})
        for name in names:
            if name not in above:
                raise location.error(
                    f"send_back_to= names {name!r}, of which nothing under review is made; {suggest_name(name, above)}"
                )
        return names or tuple(step.name for step in subjects)

    def _include_ancestors(self, names: set[str]) -> set[str]:
        """These steps, and all that they are made of."""
        found, left = set(names), list(names)
        while left:
            step = self._steps[left.pop()]
            needs = {binding.name for binding in step.bindings if binding.kind != "input"} | set(step.after)
            new = (needs | ({step.source} if step.source else set())) & self._steps.keys() - found
            found |= new
            left += new
        return found

    def _check_has_sources(self, sources: tuple[StepReference, ...]) -> None:
        # `@pipeline.each` without parentheses would silently replace the function by a decorator.
        bare = [source for source in sources if callable(source) and not self._defines(source)]
        if len(bare) == len(sources):
            name = getattr(bare[0], "__name__", None) if bare else None
            raise Location(self.name, name).error("each goes over a step defined above: @...each(step)")

    def _resolve_sources(self, sources: tuple[StepReference, ...], location: Location) -> tuple[str, ...]:
        names = tuple(self._resolve_name(source, location, "each goes over") for source in sources)
        known = [*self._fields, *self._list_visible_steps()]
        for name in names:
            if name not in known:
                raise location.error(
                    f"each goes over {name!r}, which is no input and no step above; {suggest_name(name, known)}"
                )
            if names.count(name) > 1:
                raise location.error(f"each goes over {name!r} twice; go over a list of pairs from a plain step")
        return names

    def _resolve_after(self, references: Any, location: Location) -> tuple[str, ...]:
        listed = [references] if isinstance(references, str) or callable(references) else references
        names = tuple(self._resolve_name(reference, location, "after= names") for reference in listed)
        if location.step in names:
            raise location.error("after= names the step itself")
        return names

    def _resolve_continues(self, reference: StepReference | None, step: Step, location: Location) -> tuple[str, ...]:
        """The step that this one continues, and those which that one does."""
        if reference is None:
            return ()
        name = self._resolve_name(reference, location, "continues= names")
        taken = [binding.name for binding in step.bindings if binding.kind == "step"]
        earlier = self._steps.get(name)
        if earlier is None or earlier.source != step.source or name not in (*taken, *step.after):
            raise location.error(
                f"continues= names {name!r}; give an each step over the same items whose result this one takes"
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
                f"{verb} {name!r}, which is no step of this pipeline; {suggest_name(name, self._list_visible_steps())}"
            )
        return name

    def _defines(self, function: StepReference) -> bool:
        return any(step.function is function for step in self._steps.values())

    def _check_same_key(self, step: Step, location: Location) -> None:
        for other in self._steps.values():
            if step.key and other.key and other.source == step.source and other.key != step.key:
                raise location.error(
                    f"its key= differs from that of {other.name!r}, which goes over the same items; give it only once"
                )


def _check_resumes(value: int, location: Location) -> int:
    if not isinstance(value, int) or not 0 <= value <= MAX_RESUMES:
        raise location.error(f"resumes= is {value!r}; give a number from 0 to {MAX_RESUMES}")
    return value


def _check_when(when: Callable[..., bool], subjects: Sequence[Step], location: Location) -> tuple[str, ...]:
    names, known = tuple(signature(when).parameters), [step.name for step in subjects]
    for name in names:
        if name not in known:
            raise location.error(
                f"when= takes {name!r}, and the review is of {quote_names(known)}; {suggest_name(name, known)}"
            )
    return names


def _check_max_revisions(value: int, location: Location) -> int:
    if not isinstance(value, int) or value < 0:
        raise location.error(f"max_revisions= is {value!r}; give a number, 0 if it may never go back")
    return value


def _parse_optional_duration(name: str, value: Duration | None, location: Location) -> timedelta | None:
    return None if value is None else parse_duration(name, value, location)


def _check_review(policy: ReviewPolicy, subjects: Sequence[Step], location: Location) -> None:
    if len(subjects) > 1 and not policy.has_form:
        raise location.error("it is of several steps, so that it needs form=: what a person fills in is its result")
    if len(subjects) > 1 and any(step.each for step in subjects):
        raise location.error("it is of several steps, of which none may be an each step: review that one by itself")
    if policy.on_expiry not in get_args(OnExpiry):
        raise location.error(f"on_expiry= is {policy.on_expiry!r}; it is one of {quote_names(get_args(OnExpiry))}")
    if (policy.escalate is None) != (policy.escalate_to is None):
        raise location.error("escalate= and escalate_to= go together: when, and to whom")


def _check_has_defaults(form: type[BaseModel], reason: str, location: Location) -> None:
    missing = [name for name, field in form.model_fields.items() if field.is_required()]
    if missing:
        raise location.error(f"{reason} wants {quote_names(missing)}")


def _read_annotations(inputs: type[BaseModel] | None, location: Location) -> dict[str, Any]:
    if inputs is None:
        return {}
    if not isclass(inputs) or not issubclass(inputs, BaseModel):
        raise location.error(f"inputs= is {inputs!r}; give a subclass of pydantic's BaseModel")
    return {name: field.annotation for name, field in inputs.model_fields.items()}


def _check_has_parameters(step: Step, location: Location) -> None:
    if not step.bindings and not step.after:
        raise location.error("it takes neither its item nor anything else; it would do the same for every item")


def _check_isolated(function: Callable[..., Any], resources: Sequence[Resource], location: Location) -> None:
    for resource in resources:
        if resource.name != "ctx":
            raise location.error(
                f"with isolation it cannot take the resource {resource.name!r}: its child process has nothing of the "
                "worker's, neither its environment nor its connections; split the step in two"
            )
    if "<locals>" in function.__qualname__:
        raise location.error(
            "with isolation its function must be at the top of its module, where a child can import it"
        )


def _check_types(step: Step) -> None:
    """What passes between steps is JSON: a type that cannot be is a mistake."""
    place = Location(step.pipeline, step.name)
    for what, annotation in [("its result", step.returns), *((b.parameter, b.annotation) for b in step.bindings)]:
        try:
            get_codec(get_args(annotation)[0] if get_origin(annotation) is Items else annotation)
        except (PydanticUserError, IndexError) as error:
            told = str(error).partition("\n")[0]
            raise place.error(f"{what} is {annotation!r}, which cannot be JSON: {told}") from None
