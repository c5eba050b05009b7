"""The application's pipelines, and what their runs start with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from retoma.define.pipeline import Pipeline
from retoma.errors import NotFound
from retoma.server.callers import Caller, caller
from retoma.server.problems import documented
from retoma.server.shapes import Name, PipelineList, PipelineShape

router = APIRouter(prefix="/pipelines", tags=["pipelines"])
Reader = Annotated[Caller, caller("runs:read")]


@router.get("", summary="List pipelines with the schemas of their inputs")
async def list_pipelines(by: Reader) -> PipelineList:
    app = by.client.app
    return PipelineList(pipelines=[] if app is None else [_shape(one) for one in app.pipelines.values()])


@router.get("/{pipeline}", summary="Show one pipeline", responses=documented(404))
async def show_pipeline(pipeline: Annotated[Name, Path()], by: Reader) -> PipelineShape:
    if by.client.app is None:
        raise NotFound("this server has no application, so that it knows no pipelines")
    return _shape(by.client.app.pipeline(pipeline))


def _shape(pipeline: Pipeline) -> PipelineShape:
    schema = None if pipeline.inputs is None else pipeline.inputs.model_json_schema()
    steps = [step.name for step in pipeline.graph.steps if not step.hidden]
    return PipelineShape(name=pipeline.name, input_schema=schema, steps=steps)
