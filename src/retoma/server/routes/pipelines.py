"""The application's pipelines and the schemas of their inputs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from retoma.define.pipeline import Pipeline as DefinedPipeline
from retoma.errors import NotFound
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import Name, Pipeline, PipelineList

router = APIRouter(prefix="/pipelines", tags=["pipelines"])
Reader = Annotated[Principal, require_scope("runs:read")]


@router.get("", summary="List pipelines with their input schemas")
async def list_pipelines(by: Reader) -> PipelineList:
    app = by.client.app
    return PipelineList(pipelines=[] if app is None else [_serialize_pipeline(one) for one in app.pipelines.values()])


@router.get("/{pipeline}", summary="Get a pipeline", responses=document_problems(404))
async def get_pipeline(pipeline: Annotated[Name, Path()], by: Reader) -> Pipeline:
    if by.client.app is None:
        raise NotFound("this server runs without an application, so it has no pipelines")
    return _serialize_pipeline(by.client.app.pipeline(pipeline))


def _serialize_pipeline(pipeline: DefinedPipeline) -> Pipeline:
    schema = None if pipeline.inputs is None else pipeline.inputs.model_json_schema()
    steps = [step.name for step in pipeline.graph.steps if not step.internal]
    return Pipeline(name=pipeline.name, input_schema=schema, steps=steps)
