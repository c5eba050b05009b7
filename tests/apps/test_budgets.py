"""Every step of the applications that can charge declares it, so hard budgets are checked before its calls."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import retoma_apps
from retoma.define.step import Step
from retoma_apps import samples


def list_steps() -> dict[str, Step]:
    pipelines = [*retoma_apps.app.pipelines.values(), *samples.app.pipelines.values()]
    return {f"{pipeline.name}.{name}": step for pipeline in pipelines for name, step in pipeline.steps.items()}


def can_charge(function: Any, seen: set[Any]) -> bool:
    """Whether the code of a function, or of a function of the applications that it calls, has a call of `charge`."""
    if not isinstance(function, FunctionType) or function in seen or not is_ours(function.__module__):
        return False
    seen.add(function)
    names = set(list_names(function.__code__))
    return "charge" in names or any(can_charge(callee, seen) for callee in list_callees(function, names))


def list_names(code: CodeType) -> Iterator[str]:
    """The names that the code reads, and those of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from list_names(constant)


def list_callees(function: FunctionType, names: set[str]) -> list[Any]:
    """The functions that these names may be: of its module, its class, its parameters' classes, or a module there."""
    own_class, known = function.__qualname__.split(".")[0], function.__globals__
    found = [known[name] for name in names if name in known]
    owners = [*found, *(known.get(str(name)) for name in (own_class, *function.__annotations__.values()))]
    ours = [each for each in owners if isinstance(each, ModuleType | type) and is_ours(name_of(each))]
    return [*found, *(getattr(owner, name, None) for owner in ours for name in names)]


def name_of(owner: ModuleType | type) -> str:
    return owner.__name__ if isinstance(owner, ModuleType) else owner.__module__


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "retoma_apps"


def test_budgets_are_checked_before_every_step_that_can_charge() -> None:
    charging = {name: step for name, step in list_steps().items() if can_charge(step.function, set())}
    assert {name.split(".")[0] for name in charging} >= {"longform", "article", "classificacao", "img2vid", "story"}
    assert [name for name, step in charging.items() if not step.may_charge] == []
    # Several attempts that start together only keep to a budget if each reserves an estimate.
    assert [name for name, step in charging.items() if step.estimated_cost is None] == []


def test_no_step_that_cannot_charge_waits_for_a_budget() -> None:
    free = {name: step for name, step in list_steps().items() if not can_charge(step.function, set())}
    assert [name for name, step in free.items() if step.may_charge] == []
