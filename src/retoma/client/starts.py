"""Build the request that starts a run, from a pipeline and its input."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from retoma.client.core import Core
from retoma.client.file_access import admit_files
from retoma.client.titles import make_title
from retoma.client.validation import check_start_options, digest_input, encode_input, validate_input
from retoma.define.pipeline import Input, Pipeline
from retoma.engine import versions
from retoma.engine.run_starter import StartRequest
from retoma.identifiers import new_run_id


async def build_start(
    core: Core,
    pipeline: Pipeline | str,
    inputs: Input,
    *,
    tenant: str,
    key: str | None = None,
    run_at: datetime | None = None,
    priority: int = 0,
    request: BaseModel | None = None,
) -> StartRequest:
    """Check the input, the files that it names and the options of a start."""
    pipeline = core.get_pipeline(pipeline)
    checked = validate_input(pipeline, inputs, tenant)
    check_start_options(tenant=tenant, key=key, priority=priority, run_at=run_at)
    text = encode_input(checked)
    await admit_files(core, tenant, text)
    return StartRequest(
        id=new_run_id(),
        tenant=await core.get_or_create_tenant(tenant),
        version=await core.get_version(pipeline),
        input=text,
        key=key,
        digest=None if key is None else digest_input(request or checked),
        run_at=run_at,
        head_start=versions.get_head_start(priority),
        title=make_title(pipeline, checked),
    )
