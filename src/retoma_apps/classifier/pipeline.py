"""One execution: each document is read in a child process and then labelled. A document that fails, fails alone."""

from __future__ import annotations

from collections import Counter

from retoma import Context, Isolation, Items, Pipeline, Pool, Retry, all_finished, exponential, minutes
from retoma_apps.classifier.models import MOST_RETRIES, Batch, Classification, Criteria, Document, Summary, Text
from retoma_apps.classifier.steps.labelling import Labeller
from retoma_apps.classifier.steps.reading import Unreadable, read_path
from retoma_apps.providers import estimates

LLM = Pool("llm", capacity=8)
RETRY = Retry(MOST_RETRIES, backoff=exponential(5, factor=2))  # a project may allow fewer, never more
DOCUMENT_LIMIT = minutes(2)
MEMORY = 2 << 30  # OCR needs it


def make_title(batch: Batch) -> str:
    """Return the name that the caller gave, or else that of the first document."""
    count = len(batch.documentos)
    name = batch.nome or batch.documentos[0].codigo
    return name if count == 1 else f"{name} ({count} documentos)"


classification = Pipeline("classificacao", inputs=Batch, title=make_title, stuck_after=minutes(5), resumes=3)


@classification.step
def documents(documentos: list[Document]) -> list[Document]:
    return documentos


@classification.step
def criteria(criterios: Criteria) -> Criteria:
    return criterios


@classification.each(
    documents,
    key="codigo",
    when=lambda document: document.duplicado_de is None,
    isolation=Isolation(MEMORY),
    timeout=DOCUMENT_LIMIT,
    work_limit=DOCUMENT_LIMIT,
    retry=RETRY,
)
def text(document: Document, *, ctx: Context) -> Text:
    if document.recusa is not None or document.arquivo is None:
        raise _unreadable_error(document)
    found = read_path(str(ctx.path(document.arquivo)))
    return Text(texto=found.text, paginas=found.pages, paginas_ocr=found.ocr_pages, cortado=found.is_truncated)


@classification.each(
    documents,
    pool=LLM,
    timeout=DOCUMENT_LIMIT,
    work_limit=DOCUMENT_LIMIT,
    retry=RETRY,
    continues=text,
    estimated_cost=estimates.SHORT_ANSWER,
)
async def label(text: Text, criteria: Criteria, *, labeller: Labeller, ctx: Context) -> Classification:
    return await labeller.label(text, criteria, ctx)


@classification.step(proceed_when=all_finished(allow_failed=1.0))
def summary(label: Items[Classification], criteria: Criteria) -> Summary:
    found = list(label)
    return Summary(
        rotulos=dict(Counter(each.rotulo for each in found).most_common()),
        pouca_confianca=sum(is_unsure(each, criteria.confianca_minima) for each in found),
        corrigidos=sum(each.corrigido for each in found),
    )


def is_unsure(result: Classification, min_confidence: float) -> bool:
    """Return whether a person should review this label."""
    return result.confianca < min_confidence and not result.corrigido


def _unreadable_error(document: Document) -> Unreadable:
    if document.recusa is None:
        return Unreadable("the document has no file", "FILE_EMPTY")
    return Unreadable(document.recusa.detalhe, document.recusa.codigo)
