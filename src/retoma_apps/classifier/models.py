"""Projects, and the input of an execution: the project's criteria as of its start, and its documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from retoma import File
from retoma_apps.classifier.steps.reading.errors import Code as Why

ROUTE = "/classificador/"
MOST_DOCUMENTS = 2_000
MOST_RETRIES = 10
LONGEST_CODE = 180  # bytes in JSON: the largest batch with the longest codes must fit a step's result
_LINE = r"^[^\x00-\x1f\x7f]*$"
_PLAIN = r"^[^\s\x00-\x1f\x7f\\]([^\x00-\x1f\x7f\x85\u2028\u2029\\]*[^\s\x00-\x1f\x7f\\])?$"  # can be shown in a form
DEFAULT_MODEL = "openai/gpt-5-mini"

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=_LINE)]
Label = Annotated[str, Field(min_length=1, max_length=100, pattern=_PLAIN)]
Code = Annotated[str, Field(min_length=1, max_length=LONGEST_CODE, pattern=_LINE)]


def find_duplicate(labels: Iterable[str]) -> str | None:
    """Return the first label that equals an earlier one, except for capitals."""
    seen: set[str] = set()
    for label in labels:
        if label.casefold() in seen:
            return label
        seen.add(label.casefold())
    return None


class Category(BaseModel):
    """A label of the taxonomy, and its meaning, for the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rotulo: Label
    descricao: Annotated[str, Field(max_length=2_000)] = ""


class Example(BaseModel):
    """A text with a known label. The offline model learns from these; a language model sees a few in its prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    texto: Annotated[str, Field(min_length=1, max_length=20_000)]
    rotulo: Label


class Project(BaseModel):
    """The settings of a project, from which each of its executions starts."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "nome": "Peças processuais",
                    "taxonomia": [
                        {"rotulo": "petição inicial", "descricao": "Abre o processo."},
                        {"rotulo": "sentença", "descricao": "Decide o pedido."},
                    ],
                    "prompt": "Classifique a peça pelo seu tipo.",
                    "exemplos": [{"texto": "Julgo procedente o pedido.", "rotulo": "sentença"}],
                }
            ]
        },
    )

    nome: Name
    taxonomia: Annotated[list[Category], Field(min_length=1, max_length=200)]
    prompt: Annotated[str, Field(max_length=8_000)] = Field("", description="Your instructions for the model.")
    exemplos: Annotated[list[Example], Field(max_length=1_000)] = []
    modelo: Annotated[str, Field(min_length=1, max_length=200, pattern=_LINE)] = Field(
        DEFAULT_MODEL, description="The model's name at its provider."
    )
    max_retries_execucao: Annotated[int, Field(ge=0, le=MOST_RETRIES)] = Field(
        3, description="Automatic resumes of a stuck execution without progress."
    )
    max_retries_documento: Annotated[int, Field(ge=0, le=MOST_RETRIES)] = Field(
        2, description="Retries of a failed document."
    )
    confianca_minima: Annotated[float, Field(ge=0, le=1)] = Field(
        0.6, description="Labels with less confidence are marked for review."
    )

    @field_validator("taxonomia")
    @classmethod
    def _labels_are_distinct(cls, value: list[Category]) -> list[Category]:
        if (twice := find_duplicate(category.rotulo for category in value)) is not None:
            raise ValueError(f"the label {twice!r} occurs twice")
        return value

    @field_validator("exemplos")
    @classmethod
    def _examples_have_labels_of_the_taxonomy(cls, value: list[Example], info: object) -> list[Example]:
        known = {category.rotulo for category in getattr(info, "data", {}).get("taxonomia", ())}
        for example in value:
            if known and example.rotulo not in known:
                raise ValueError(f"an example has the label {example.rotulo!r}, which is not in the taxonomy")
        return value

    @property
    def labels(self) -> list[str]:
        return [category.rotulo for category in self.taxonomia]


class Criteria(BaseModel):
    """The criteria of an execution. `exemplos` are in a file, so they do not travel with every document."""

    model_config = ConfigDict(frozen=True)

    taxonomia: list[Category]
    prompt: str = ""
    modelo: str = DEFAULT_MODEL
    confianca_minima: float = 0.6
    exemplos: File | None = None


class Refusal(BaseModel):
    """Why a document cannot be read, known before any attempt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    codigo: Why
    detalhe: Annotated[str, Field(max_length=200, pattern=r"^[\x20-\x7e]*$")] = Field(
        description="The original message, in English."
    )


class ExplainedRefusal(Refusal):
    mensagem: Annotated[str, Field(max_length=300)] = Field(
        description="The meaning of `codigo` and what to do, in Portuguese."
    )


def _file_reference(file: File | None) -> dict[str, Any] | None:
    return None if file is None else {"file": file.file, "size": file.size}


class Document(BaseModel):
    """`codigo` identifies it within its batch. If an earlier document has the same content, `duplicado_de` names it.

    Its JSON is as short as possible: thousands are the result of one step.
    """

    model_config = ConfigDict(frozen=True)

    codigo: Code
    arquivo: Annotated[File | None, PlainSerializer(_file_reference)] = None
    recusa: Refusal | None = None
    duplicado_de: str | None = None

    @model_serializer(mode="wrap")
    def _omit_none(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class Batch(BaseModel):
    """The limits are those of the project at the start of the execution."""

    criterios: Criteria
    documentos: Annotated[list[Document], Field(min_length=1, max_length=MOST_DOCUMENTS)]
    nome: str = ""
    rota: str = ROUTE
    max_retries: int = 3
    max_retries_documento: int = 2


class Text(BaseModel):
    """The text of a document."""

    texto: str
    paginas: int = 1
    paginas_ocr: int = 0
    cortado: bool = False


class Classification(BaseModel):
    """A document's label. If a person has corrected it, `rotulo_modelo` is the model's label."""

    rotulo: str
    confianca: float = 1.0
    justificativa: str = ""
    modelo: str = ""
    corrigido: bool = False
    rotulo_modelo: str | None = None


class Summary(BaseModel):
    """The number of documents by label."""

    rotulos: dict[str, int]
    pouca_confianca: int
    corrigidos: int
