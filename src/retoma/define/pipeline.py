"""A pipeline: what users write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import isclass, isfunction
from types import MappingProxyType
from typing import Any, TypeVar, Unpack, get_args, get_origin, overload

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from retoma.define.bindings import Scope, bind, check_sources
from retoma.define.codec import codec_of
from retoma.define.compiler import compile_graph
from retoma.define.durations import Duration, minutes
from retoma.define.graph import Graph
from retoma.define.hidden import input_step, product_step
from retoma.define.items import Items
from retoma.define.keys import ItemSet, Keys, keys_per_source
from retoma.define.mistakes import Place, check_name, suggestion
from retoma.define.options import EachOptions, StepOptions, StepReference, check_options, limit_of, policy_of
from retoma.define.pool import Pool
from retoma.define.retry import DEFAULT_RETRY, Retry
from retoma.define.signature import condition_parameters, read_signature
from retoma.define.step import DEFAULT_TIMEOUT, Policy, Resource, Step, source_name

DEFAULT_STUCK_AFTER = minutes(5)
DEFAULT_RESUMES = 3
MOST_RESUMES = 100
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
    ) -> None:
        place = Place(name)
        check_name("pipeline", name, place, also="-.")
        self.name = name
        self.inputs = inputs
        self.stuck_after = limit_of("stuck_after", stuck_after, place)
        self.resumes = _checked_resumes(resumes, place)
        self._fields = _annotations(inputs, place)
        self._defaults = policy_of({"queue": queue, "retry": retry, "timeout": timeout}, Policy(), place)
        self._steps: dict[str, Step] = {}
        self._item_sets: dict[str, ItemSet] = {}
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

    @property
    def steps(self) -> Mapping[str, Step]:
        """All steps by name, in the order of their definition, hidden ones included."""
        return MappingProxyType(self._steps)

    @property
    def item_sets(self) -> Mapping[str, ItemSet]:
        """What fans out, by the name of the step that gives the items."""
        return MappingProxyType(self._item_sets)

    @property
    def pools(self) -> list[Pool]:
        """The pools that its steps take slots of."""
        return list(dict.fromkeys(step.policy.pool for step in self._steps.values() if step.policy.pool))

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            self._graph = compile_graph(self.name, self._steps)
        return self._graph

    def check(self) -> None:
        """Raise a DefinitionError if the pipeline as a whole cannot work."""
        _ = self.graph
        for step in self._steps.values():
            _check_types(step)

    def _define_plain(self, function: Callable[..., Any], options: StepOptions) -> None:
        place = self._place_of(function)
        check_options(options, StepOptions, place)
        scope = Scope(place, self._fields, self._visible())
        self._register(self._built(function, options, scope, self._defaults))

    def _define_each(
        self,
        function: Callable[..., Any],
        sources: tuple[StepReference, ...],
        key: Keys,
        options: EachOptions,
    ) -> None:
        place = self._place_of(function)
        check_options(options, EachOptions, place)
        scope = Scope(place, self._fields, self._visible(), self._source_names(sources, place))
        check_sources(scope)
        step = self._built(function, options, scope, replace(self._defaults, on_failure="continue"))
        _check_needs_something(step, place)
        step = replace(step, key=keys_per_source(key, scope.elements, place))
        self._check_same_key(step, place)
        self._register(*self._missing_sources(scope.sources), step)

    def _built(self, function: Callable[..., Any], options: Mapping[str, Any], scope: Scope, defaults: Policy) -> Step:
        place = scope.place
        signature = read_signature(function, place)
        when = options.get("when")
        policy = policy_of(options, defaults, place)
        if policy.isolation is not None:
            _check_isolated(function, signature.resources, place)
        return Step(
            pipeline=self.name,
            name=function.__name__,
            function=function,
            bindings=bind(signature.data, scope),
            resources=signature.resources,
            returns=signature.returns,
            policy=policy,
            sources=scope.sources,
            after=self._after(options.get("after", ()), place),
            when=when,
            when_parameters=() if when is None else condition_parameters(when, signature.data, place),
            proceed_when=options.get("proceed_when"),
        )

    def _register(self, *steps: Step) -> None:
        for step in steps:
            self._steps[step.name] = step
            if step.source and (step.key or step.source not in self._item_sets):
                keys = step.key or (None,) * len(step.sources)
                self._item_sets[step.source] = ItemSet(step.source, step.sources, keys)
        self._graph = None

    def _missing_sources(self, sources: tuple[str, ...]) -> Iterator[Step]:
        """The hidden steps that must be there for an each step to have one plain step as its source."""
        for name in sources:
            if name in self._fields and name not in self._steps:
                yield input_step(self.name, name, self._fields[name], self._defaults)
        if len(sources) > 1 and source_name(sources) not in self._steps:
            yield product_step(self.name, sources, self._defaults)

    def _visible(self) -> dict[str, Step]:
        return {name: step for name, step in self._steps.items() if not step.hidden}

    def _place_of(self, function: object) -> Place:
        """Where `function` is being defined. It must be one, and its name must be free."""
        if not isfunction(function):
            raise Place(self.name).mistake(f"{function!r} cannot be a step; a step is a function")
        place = Place(self.name, function.__name__)
        check_name("step", function.__name__, place)
        if function.__name__ in self._fields:
            raise place.mistake(f"{function.__name__!r} is an input already; give the step another name")
        if function.__name__ in self._steps:
            raise place.mistake("there is a step of that name already")
        return place

    def _check_has_sources(self, sources: tuple[StepReference, ...]) -> None:
        # `@pipeline.each` without parentheses would silently replace the function by a decorator.
        bare = [source for source in sources if callable(source) and not self._defines(source)]
        if len(bare) == len(sources):
            name = getattr(bare[0], "__name__", None) if bare else None
            raise Place(self.name, name).mistake("each goes over a step defined above: @...each(step)")

    def _source_names(self, sources: tuple[StepReference, ...], place: Place) -> tuple[str, ...]:
        names = tuple(self._name_of(source, place, "each goes over") for source in sources)
        known = [*self._fields, *self._visible()]
        for name in names:
            if name not in known:
                raise place.mistake(
                    f"each goes over {name!r}, which is no input and no step above; {suggestion(name, known)}"
                )
            if names.count(name) > 1:
                raise place.mistake(f"each goes over {name!r} twice; go over a list of pairs from a plain step")
        return names

    def _after(self, references: Any, place: Place) -> tuple[str, ...]:
        listed = [references] if isinstance(references, str) or callable(references) else references
        names = tuple(self._name_of(reference, place, "after= names") for reference in listed)
        if place.step in names:
            raise place.mistake("after= names the step itself")
        return names

    def _name_of(self, reference: StepReference, place: Place, verb: str) -> str:
        if isinstance(reference, str):
            return reference
        name = getattr(reference, "__name__", repr(reference))
        if not self._defines(reference):
            raise place.mistake(
                f"{verb} {name!r}, which is no step of this pipeline; {suggestion(name, self._visible())}"
            )
        return name

    def _defines(self, function: StepReference) -> bool:
        return any(step.function is function for step in self._steps.values())

    def _check_same_key(self, step: Step, place: Place) -> None:
        for other in self._steps.values():
            if step.key and other.key and other.source == step.source and other.key != step.key:
                raise place.mistake(
                    f"its key= differs from that of {other.name!r}, which goes over the same items; give it only once"
                )


def _checked_resumes(given: int, place: Place) -> int:
    if not isinstance(given, int) or not 0 <= given <= MOST_RESUMES:
        raise place.mistake(f"resumes= is {given!r}; give a number from 0 to {MOST_RESUMES}")
    return given


def _annotations(inputs: type[BaseModel] | None, place: Place) -> dict[str, Any]:
    if inputs is None:
        return {}
    if not isclass(inputs) or not issubclass(inputs, BaseModel):
        raise place.mistake(f"inputs= is {inputs!r}; give a subclass of pydantic's BaseModel")
    return {name: field.annotation for name, field in inputs.model_fields.items()}


def _check_needs_something(step: Step, place: Place) -> None:
    if not step.bindings and not step.after:
        raise place.mistake("it takes neither its item nor anything else; it would do the same for every item")


def _check_isolated(function: Callable[..., Any], resources: Sequence[Resource], place: Place) -> None:
    for resource in resources:
        if resource.name != "ctx":
            raise place.mistake(
                f"with isolation it cannot take the resource {resource.name!r}: its child process has nothing of the "
                "worker's, neither its environment nor its connections; split the step in two"
            )
    if "<locals>" in function.__qualname__:
        raise place.mistake("with isolation its function must be at the top of its module, where a child can import it")


def _check_types(step: Step) -> None:
    """What passes between steps is JSON: a type that cannot be is a mistake."""
    place = Place(step.pipeline, step.name)
    for what, annotation in [("its result", step.returns), *((b.parameter, b.annotation) for b in step.bindings)]:
        try:
            codec_of(get_args(annotation)[0] if get_origin(annotation) is Items else annotation)
        except (PydanticUserError, IndexError) as error:
            told = str(error).partition("\n")[0]
            raise place.mistake(f"{what} is {annotation!r}, which cannot be JSON: {told}") from None
