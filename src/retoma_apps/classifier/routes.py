"""The HTTP routes of the classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from retoma.errors import InvalidInput, NotFound
from retoma.files import FileStore
from retoma.records import Run
from retoma.server import Principal, Problem, document_binary, document_problems, idempotency_key_header, require_scope
from retoma.translations import N_
from retoma_apps.classifier.models import MOST_DOCUMENTS, Code, Label, Name, Project
from retoma_apps.classifier.operations import executions, exports, projects, uploads
from retoma_apps.classifier.operations.projects import OfflineAccuracies, StoredProject
from retoma_apps.classifier.operations.uploads import Upload
from retoma_apps.classifier.pages.problems import PortugueseRoute
from retoma_apps.classifier.pipeline import classification
from retoma_apps.classifier.schemas import (
    DocumentDetails,
    DocumentPage,
    ErrorPage,
    ExecutionDetails,
    ExecutionPage,
    ExecutionRerun,
    ExecutionResults,
    ExecutionResumed,
    ExecutionSummary,
    ExportedDocument,
    ProjectAccuracy,
    ProjectDetails,
    ProjectList,
    UploadList,
)
from retoma_apps.classifier.states import DocumentStatus, Status, states_of
from retoma_apps.classifier.steps.reading import Unreadable
from retoma_apps.providers import llm
from retoma_apps.providers.chains import get_first_provider
from retoma_apps.providers.provider import format_variables

Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
IdempotencyKey = Annotated[
    str | None,
    idempotency_key_header(
        "The same key and body always return the same execution. "
        "If the project was changed in between, the request is different and is rejected."
    ),
]
ActionKeyHeader = Annotated[
    str | None,
    idempotency_key_header("The same action with the same key runs once; repeats get the first answer."),
]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="The ETag of the project that you read.")]
Filename = Annotated[str, Query(max_length=500, description="The file's name, including its folders if any.")]
Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[int, Query(ge=-1, le=10**9, description="`proximo` of the previous page.")]
SECONDS_TO_MEASURE = 15.0  # then the answer is that it is being measured
_NO_EXAMPLES = N_(
    "without %(variables)s, documents are labelled by the project's examples, and this project has none yet: add some "
    "with PUT /projetos/{projeto} or on the project's page"
)
_CONFLICT = document_problems(409)
_EXPORT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The export in the requested `formato`.",
        "content": {"text/csv": {"schema": {"type": "string"}}},
        "model": list[ExportedDocument],
    }
}


class NewExecution(BaseModel):
    model_config = ConfigDict(extra="forbid")

    projeto: Name
    nome: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = Field(
        "", description="A name for people."
    )
    documentos: Annotated[list[Upload], Field(min_length=1)] = Field(
        description=f"The documents as `POST /arquivos` returned them, 1 to {MOST_DOCUMENTS:,}."
    )
    webhook_url: Annotated[str, Field(min_length=1, max_length=2_000)] | None = Field(
        None,
        description="Notified when the execution ends or is stuck.",
        json_schema_extra={"format": "uri"},
    )


class Correction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    codigo: Code
    rotulo: Label


class Codes(BaseModel):
    model_config = ConfigDict(extra="forbid")

    codigos: Annotated[list[Code], Field(min_length=1, max_length=MOST_DOCUMENTS)]


router = APIRouter(
    tags=["classificador"], route_class=PortugueseRoute, responses=document_problems(400, 401, 403, 413, 422, 429, 503)
)
project_router = APIRouter(prefix="/projetos/{projeto}", route_class=PortugueseRoute, responses=document_problems(404))
execution_router = APIRouter(
    prefix="/execucoes/{execucao}", route_class=PortugueseRoute, responses=document_problems(404)
)


@router.post(
    "/projetos", status_code=201, summary="Create a project", response_model=ProjectDetails, responses=_CONFLICT
)
async def create_project(body: Project, by: Writer) -> Response:
    return _project_response(await projects.create_project(by.client, body), 201)


@router.get("/projetos", summary="List projects", response_model=ProjectList)
async def list_projects(by: Reader) -> dict[str, Any]:
    found = await projects.list_projects(by.client)
    return {"projetos": [_project_outline(each) for each in found]}


@project_router.get("", summary="Get a project", response_model=ProjectDetails)
async def get_project(projeto: str, by: Reader) -> Response:
    return _project_response(await _get_own_project(by, projeto))


@project_router.put(
    "", summary="Change a project", response_model=ProjectDetails, responses=document_problems(409, 412)
)
async def change_project(projeto: str, body: Project, by: Writer, if_match: IfMatch = None) -> Response:
    stored = await _get_own_project(by, projeto)
    if if_match is not None and if_match != _etag(stored):
        raise Problem(412, "PRECONDITION_FAILED", N_("this project was changed by somebody else: read it again first"))
    return _project_response(await projects.update_project(by.client, projeto, body, stored.revision))


@project_router.delete("", status_code=204, summary="Delete a project; its executions stay")
async def delete_project(projeto: str, by: Writer) -> Response:
    await _get_own_project(by, projeto)
    await by.client.tenants.delete_profile(projeto)
    return Response(status_code=204)


@project_router.get(
    "/precisao", summary="Accuracy of the offline model on unseen examples", response_model=ProjectAccuracy
)
async def get_project_accuracy(projeto: str, by: Reader) -> dict[str, Any]:
    stored = await _get_own_project(by, projeto)
    accuracies: OfflineAccuracies = by.application.resources["accuracies"]
    accuracy, is_measured = await accuracies.get(stored, SECONDS_TO_MEASURE)
    return {
        "offline": await _is_offline(by, projeto),
        "medindo": not is_measured,
        "exemplos": len(stored.project.exemplos),
        "acerto": accuracy.share if accuracy else None,
        "medidos": accuracy.examples if accuracy else 0,
        "sem_medida": list(accuracy.untested) if accuracy else [],
        "poucos_para_medir": is_measured and (accuracy is None or accuracy.examples < projects.MIN_EXAMPLES_TO_MEASURE),
    }


@router.post(
    "/arquivos",
    summary="Upload a document, or many as a zip; the body is the file itself",
    response_model=UploadList,
    response_model_exclude_none=True,
    responses=document_problems(415, 422),
    openapi_extra={"requestBody": {"required": True, "content": document_binary("")["content"]}},
)
async def upload_document(request: Request, by: Writer, nome: Filename = "") -> dict[str, Any]:
    _check_is_file(request)
    try:
        stored = await uploads.store_upload(by.client, nome, request.stream())
    except Unreadable as error:
        raise Problem(422, str(error.code), str(error)) from error
    return {"documentos": [upload.model_dump(exclude_none=True) for upload in stored]}


@router.post(
    "/execucoes",
    status_code=202,
    summary="Classify documents",
    response_model=ExecutionSummary,
    responses=document_problems(404),
)
async def start_execution(body: NewExecution, by: Writer, key: IdempotencyKey = None) -> Response:
    stored = await _get_own_project(by, body.projeto)
    if await _is_offline(by, body.projeto) and not stored.project.exemplos:
        reason = InvalidInput(_NO_EXAMPLES, variables=format_variables(llm.PROVIDERS))
        raise Problem(422, "NO_EXAMPLES", str(reason)) from reason
    run = await executions.start_execution(
        by.client, _files(by), stored, body.documentos, name=body.nome, key=key, webhook_url=body.webhook_url
    )
    shown = await executions.get_execution(by.client, run)
    return JSONResponse(shown.to_json(), 202, {"Location": f"/execucoes/{run.id}"})


@router.get("/execucoes", summary="List executions, newest first", response_model=ExecutionPage)
async def list_executions(
    by: Reader,
    projeto: Annotated[str | None, Query(max_length=100)] = None,
    status: Status | None = None,
    antes: Annotated[UUID | None, Query(description="`proximo` of the previous page.")] = None,
    limite: Annotated[int, Query(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    found = await by.client.runs.list(
        tenant=projeto,
        pipeline=classification.name,
        states=None if status is None else states_of(status),
        before=antes,
        limit=limite + 1,
    )
    shown = [(await executions.get_execution(by.client, run)).to_json() for run in found[:limite]]
    return {
        "execucoes": [each for each in shown if status in (None, each["status"])],
        "proximo": str(found[limite - 1].id) if len(found) > limite else None,
    }


@execution_router.get("", summary="Get an execution", operation_id="get_execution", response_model=ExecutionDetails)
@execution_router.get(
    "/status-detalhado",
    summary="Status of an execution with its last progress, errors and route",
    response_model=ExecutionDetails,
)
async def get_execution_status(execucao: UUID, by: Reader) -> dict[str, Any]:
    return await executions.get_status_details(by.client, await _get_own_run(by, execucao))


@execution_router.get("/erros", summary="List failed documents with details", response_model=ErrorPage)
async def list_errors(execucao: UUID, by: Reader, apos: After = -1, limite: Limit = 100) -> dict[str, Any]:
    run = await _get_own_run(by, execucao)
    found, after = await executions.list_documents(by.client, run, status="ERRO", after=apos, limit=limite)
    counts = (await executions.get_execution(by.client, run)).counts
    return {"total": counts["ERRO"], "erros": found, "proximo": after}


@execution_router.post("/retomar", summary="Resume an execution", response_model=ExecutionResumed, responses=_CONFLICT)
async def resume_execution(execucao: UUID, by: Writer, key: ActionKeyHeader = None) -> Mapping[str, Any]:
    await _get_own_run(by, execucao)

    async def resume(key: str | None) -> dict[str, Any]:
        await executions.resume_execution(by.client, execucao, by=by.name, key=key)
        missing = await by.client.runs.find_missing_worker(execucao)
        return await _get_execution_json(by, execucao) | {"aviso": missing and missing.explanation}

    return await by.client.runs.get_or_record_answer(execucao, key, "retomar", resume)


@execution_router.post(
    "/reprocessar-erros", summary="Classify failed documents again", response_model=ExecutionRerun, responses=_CONFLICT
)
async def rerun_errors(execucao: UUID, by: Writer, key: ActionKeyHeader = None) -> Mapping[str, Any]:
    run = await _get_own_run(by, execucao)

    async def rerun(key: str | None) -> dict[str, Any]:
        documents = await executions.rerun_errors(by.client, run, by=by.name, key=key)
        return await _get_execution_json(by, execucao) | {"documentos": documents}

    return await by.client.runs.get_or_record_answer(execucao, key, "reprocessar-erros", rerun)


@execution_router.post(
    "/cancelar", summary="Cancel an execution; no further document starts", response_model=ExecutionSummary
)
async def cancel_execution(execucao: UUID, by: Writer, key: ActionKeyHeader = None) -> Mapping[str, Any]:
    await _get_own_run(by, execucao)

    async def cancel(key: str | None) -> dict[str, Any]:
        await by.client.runs.cancel(execucao, by=by.name, key=key)
        return await _get_execution_json(by, execucao)

    return await by.client.runs.get_or_record_answer(execucao, key, "cancelar", cancel)


@execution_router.get("/documentos", summary="List documents with their labels", response_model=DocumentPage)
async def list_documents(
    execucao: UUID,
    by: Reader,
    status: DocumentStatus | None = None,
    busca: Annotated[str | None, Query(max_length=200, description="Part of the code.")] = None,
    apos: After = -1,
    limite: Limit = 100,
) -> dict[str, Any]:
    run = await _get_own_run(by, execucao)
    found, after = await executions.list_documents(
        by.client, run, status=status, search=busca, after=apos, limit=limite
    )
    return {"documentos": found, "proximo": after}


@execution_router.get(
    "/arquivo", summary="Download a document", response_class=Response, responses={200: document_binary("The content.")}
)
async def download_document(execucao: UUID, codigo: Annotated[Code, Query()], by: Reader) -> Response:
    run = await _get_own_run(by, execucao)
    found = [each for each in run.input["documentos"] if each["codigo"] == codigo and "arquivo" in each]
    opened = await _files(by).open_file(Upload(nome=codigo, arquivo=found[0]["arquivo"]).arquivo) if found else None  # type: ignore[arg-type]
    if opened is None:
        raise NotFound(N_("there is no such document, or its file is no longer stored"))
    return _download_response(opened.chunks, codigo, "application/octet-stream", {"Content-Length": str(opened.size)})


@execution_router.post("/correcoes", summary="Correct a label", response_model=DocumentDetails, responses=_CONFLICT)
async def correct_label(execucao: UUID, body: Correction, by: Writer) -> dict[str, Any]:
    run = await _get_own_run(by, execucao)
    await executions.correct_label(by.client, run, body.codigo, body.rotulo, by=by.name)
    [shown], _ = await executions.list_documents(by.client, run, only=[body.codigo], limit=1)
    return shown


@execution_router.post("/pular", summary="Skip documents", response_model=ExecutionSummary, responses=_CONFLICT)
async def skip_documents(execucao: UUID, body: Codes, by: Writer) -> dict[str, Any]:
    await _get_own_run(by, execucao)
    await by.client.runs.skip(execucao, "text", body.codigos, by=by.name)
    return await _get_execution_json(by, execucao)


@execution_router.get("/resultados", summary="Count documents by label", response_model=ExecutionResults)
async def get_execution_results(execucao: UUID, by: Reader) -> dict[str, Any]:
    run = await _get_own_run(by, execucao)
    shown = await executions.get_execution(by.client, run)
    return shown.to_json() | {"resumo": await executions.get_label_summary(by.client, run)}


@execution_router.get("/exportar", summary="Export all results", response_class=Response, responses=_EXPORT_RESPONSES)
async def export_results(execucao: UUID, by: Reader, formato: exports.Format = "csv") -> Response:
    run = await _get_own_run(by, execucao)
    name = f"classificacao-{str(run.id)[:13]}.{formato}"
    return _download_response(exports.export_documents(by.client, run, formato), name, exports.MEDIA_TYPES[formato])


router.include_router(project_router)
router.include_router(execution_router)


def _check_is_file(request: Request) -> None:
    """Raise Problem for a form: its envelope would be stored as if it were the document."""
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type.startswith("multipart/") or media_type == "application/x-www-form-urlencoded":
        raise Problem(
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            N_(
                "the body is a form; send the file itself as the body and its name in ?nome=, one file or zip per "
                "request: curl --data-binary @a.pdf -H 'Content-Type: application/octet-stream' "
                "'…/arquivos?nome=a.pdf'"
            ),
            headers={"Accept": "application/octet-stream"},
        )


async def _get_own_run(by: Principal, execucao: UUID) -> Run:
    return await executions.get_run(by.client, execucao)


def _files(by: Principal) -> FileStore:
    files = by.application.files
    assert files is not None
    return files


async def _is_offline(by: Principal, project: str | None = None) -> bool:
    return bool(get_first_provider(await by.client.get_resource("labeller", tenant=project)).is_offline)


async def _get_execution_json(by: Principal, execucao: UUID) -> dict[str, Any]:
    shown = await executions.get_execution(by.client, await by.client.runs.get(execucao))
    return shown.to_json()


async def _get_own_project(by: Principal, project: str) -> StoredProject:
    return await projects.get_project(by.client, project)


def _project_outline(stored: StoredProject) -> dict[str, Any]:
    shown = stored.to_json()
    return {name: value for name, value in shown.items() if name not in ("exemplos", "prompt")} | {
        "exemplos": len(stored.project.exemplos)
    }


def _project_response(stored: StoredProject, status: int = 200) -> Response:
    return JSONResponse(stored.to_json(), status, {"ETag": _etag(stored)})


def _etag(stored: StoredProject) -> str:
    return f'"{stored.revision}"'


def _download_response(content: Any, name: str, media_type: str, headers: dict[str, str] | None = None) -> Response:
    """Send as a download: untrusted content is never shown as a page of ours."""
    filename = quote(name.rpartition("/")[2])
    return StreamingResponse(
        content,
        200,
        {
            "Content-Disposition": f"attachment; filename*=UTF-8''{filename}",
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            **(headers or {}),
        },
        media_type,
    )
