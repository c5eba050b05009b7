"""What the routes answer, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from retoma_apps.classifier.models import Category, Project, Summary
from retoma_apps.classifier.states import DocumentStatus, Status
from retoma_apps.classifier.uploads import Upload

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class ProjectDetails(Project):
    """A project as it is kept."""

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
    exemplos: int = Field(description="How many examples it has.")


class ProjectList(BaseModel):
    projetos: list[ProjectOutline]


class ProjectAccuracy(BaseModel):
    offline: bool = Field(description="Whether documents are labelled by the project's examples alone.")
    medindo: bool = Field(description="It is not measured yet: ask again.")
    exemplos: int
    acerto: float | None = Field(description="The share of right answers, from 0 to 1.")
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
    proximo: str | None = Field(description="For `antes`; null if there are no more.")


class DocumentDetails(BaseModel):
    codigo: str
    status: DocumentStatus
    tentativas: int
    erro_codigo: str | None
    erro_mensagem: str | None = Field(description="What `erro_codigo` means and what to do, in Portuguese.")
    erro_detalhe: str | None = Field(description="The error as the reader or the provider said it.")
    erro_stack: str | None
    ultimo_erro_em: Timestamp | None
    rotulo: str | None
    confianca: float | None
    justificativa: str | None
    modelo: str | None
    corrigido: bool
    rotulo_modelo: str | None = Field(description="What the model had said, if a person has corrected it.")
    rever: bool
    duplicado_de: str | None
    tamanho: int | None = Field(description="In bytes.")


class ExportedDocument(BaseModel):
    """A row of an export."""

    codigo: str
    status: DocumentStatus
    rotulo: str | None
    confianca: float | None
    rever: bool
    corrigido: bool
    rotulo_modelo: str | None
    justificativa: str | None
    duplicado_de: str | None
    tentativas: int
    erro_codigo: str | None
    erro_mensagem: str | None = Field(description="What `erro_codigo` means and what to do, in Portuguese.")
    erro_detalhe: str | None = Field(description="The error as the reader or the provider said it.")
    ultimo_erro_em: Timestamp | None


class StuckExecution(BaseModel):
    desde: Timestamp
    causa: str | None
    motivo: str
    detalhes: dict[str, Any]


class ExecutionDetails(ExecutionSummary):
    ultimo_heartbeat: Timestamp | None = Field(description="When a document was last done with.")
    ultimo_codigo_processado: str | None
    tentativas_retry: int
    max_retries: int
    max_retries_documento: int
    erros: list[DocumentDetails] = Field(description="The first 20 that failed.")
    travamento: StuckExecution | None = Field(description="Why it is stuck, or was given up.")
    esperando: list[str] = Field(description="Why what could run does not.")


class ErrorPage(BaseModel):
    total: int
    erros: list[DocumentDetails]
    proximo: int | None = Field(description="For `apos`; null if there are no more.")


class DocumentPage(BaseModel):
    documentos: list[DocumentDetails]
    proximo: int | None = Field(description="For `apos`; null if there are no more.")


class ExecutionCallback(ExecutionSummary):
    """What `webhook_url` is sent."""

    evento: str
    travamento: StuckExecution | None


class ExecutionResumed(ExecutionSummary):
    aviso: str | None = Field(description="Why it does not go on yet: no worker is running for it.")


class ExecutionRerun(ExecutionSummary):
    documentos: int = Field(description="How many are classified again.")


class ExecutionResults(ExecutionSummary):
    resumo: Summary | None = Field(description="Null while the execution is running.")
