"""The responses of the routes, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from retoma_apps.classifier.models import Category, Project, Summary
from retoma_apps.classifier.operations.uploads import Upload
from retoma_apps.classifier.states import DocumentStatus, Status

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class ProjectDetails(Project):
    """A stored project."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={})

    id: str
    revisao: int
    alterado_em: Timestamp


class ProjectOutline(BaseModel):
    id: str
    nome: str
    taxonomia: list[Category]
    modelo: str
    max_retries_execucao: int
    max_retries_documento: int
    confianca_minima: float
    revisao: int
    alterado_em: Timestamp
    exemplos: int = Field(description="The number of examples.")


class ProjectList(BaseModel):
    projetos: list[ProjectOutline]


class ProjectAccuracy(BaseModel):
    offline: bool = Field(description="Whether documents are labelled from the project's examples alone.")
    medindo: bool = Field(description="Not measured yet: try again later.")
    exemplos: int
    acerto: float | None = Field(description="The share of correct labels, from 0 to 1.")
    medidos: int
    sem_medida: list[str] = Field(description="Labels with too few examples to measure.")
    poucos_para_medir: bool


class UploadList(BaseModel):
    documentos: list[Upload]


class ExecutionSummary(BaseModel):
    id: str
    projeto: str
    nome: str
    status: Status
    rodada: int
    total: int
    processados: int
    contagem: dict[DocumentStatus, int]
    criado_em: Timestamp
    terminado_em: Timestamp | None
    rota: str


class ExecutionPage(BaseModel):
    execucoes: list[ExecutionSummary]
    proximo: str | None = Field(description="The value for `antes`; null on the last page.")


class ExportedDocument(BaseModel):
    """A row of an export. Its columns are in this order."""

    codigo: str
    status: DocumentStatus
    rotulo: str | None
    confianca: float | None
    rever: bool
    corrigido: bool
    rotulo_modelo: str | None = Field(description="The model's label, if a person has corrected it.")
    justificativa: str | None
    duplicado_de: str | None
    tentativas: int
    erro_codigo: str | None
    erro_mensagem: str | None = Field(description="The meaning of `erro_codigo` and what to do, in Portuguese.")
    ultimo_erro_em: Timestamp | None
    erro_detalhe: str | None = Field(description="The original error of the reader or the provider.")


class DocumentDetails(ExportedDocument):
    erro_stack: str | None
    modelo: str | None
    tamanho: int | None = Field(description="In bytes.")


class StuckExecution(BaseModel):
    desde: Timestamp
    causa: str | None
    motivo: str
    detalhes: dict[str, Any]


class ExecutionDetails(ExecutionSummary):
    ultimo_heartbeat: Timestamp | None = Field(description="When a document last finished.")
    ultimo_codigo_processado: str | None
    tentativas_retry: int
    max_retries: int
    max_retries_documento: int
    erros: list[DocumentDetails] = Field(description="The first 20 failed documents.")
    travamento: StuckExecution | None = Field(description="Why it is stuck, or was given up.")
    esperando: list[str] = Field(description="Why jobs that could run are waiting.")


class ErrorPage(BaseModel):
    total: int
    erros: list[DocumentDetails]
    proximo: int | None = Field(description="The value for `apos`; null on the last page.")


class DocumentPage(BaseModel):
    documentos: list[DocumentDetails]
    proximo: int | None = Field(description="The value for `apos`; null on the last page.")


class ExecutionCallback(ExecutionSummary):
    """The body sent to `webhook_url`."""

    evento: str
    travamento: StuckExecution | None


class ExecutionResumed(ExecutionSummary):
    aviso: str | None = Field(description="A warning if no worker is running for it.")


class ExecutionRerun(ExecutionSummary):
    documentos: int = Field(description="The number of documents classified again.")


class ExecutionResults(ExecutionSummary):
    resumo: Summary | None = Field(description="Null while the execution is running.")
