"""Messages of the classifier that are chosen at run time: names of statuses, causes, notices and error codes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retoma.records import StuckCause, WaitReason
from retoma.translations import CATALOGUES, N_, NP_, Translator

STEP_LABELS = {
    "documents": N_("Documents"),
    "criteria": N_("Criteria"),
    "text": N_("Text of the document"),
    "label": N_("Label"),
    "summary": N_("Summary"),
}
LOCALE = Path(__file__).parents[1] / "locale"
STATUS_NAMES = {
    "PENDENTE": NP_("execution status", "PENDING"),
    "EM_ANDAMENTO": NP_("execution status", "IN PROGRESS"),
    "TRAVADO": NP_("execution status", "STUCK"),
    "CONCLUIDO": NP_("execution status", "DONE"),
    "CONCLUIDO_COM_ERROS": NP_("execution status", "DONE WITH ERRORS"),
    "ERRO": NP_("execution status", "ERROR"),
    "CANCELADO": NP_("execution status", "CANCELLED"),
}
DOCUMENT_STATUS_NAMES = {
    "PENDENTE": NP_("document status", "Pending"),
    "PROCESSANDO": NP_("document status", "Processing"),
    "CONCLUIDO": NP_("document status", "Done"),
    "ERRO": NP_("document status", "Error"),
    "PULADO": NP_("document status", "Skipped"),
    "REVER": NP_("document status", "Done, needs checking"),
}
# Above the number of documents that have the status.
DOCUMENT_COUNT_NAMES = {
    "PENDENTE": NP_("documents", "Pending"),
    "PROCESSANDO": NP_("documents", "Processing"),
    "CONCLUIDO": NP_("documents", "Done"),
    "ERRO": NP_("documents", "Errors"),
    "PULADO": NP_("documents", "Skipped"),
    "REVER": NP_("documents", "To check"),
}
FIELD_LABELS = {
    "nome": N_("Name"),
    "taxonomia": N_("Labels"),
    "prompt": N_("Instructions for the model"),
    "exemplos": N_("Examples"),
    "modelo": N_("Model"),
    "confianca_minima": N_("Minimum confidence, in %"),
    "max_retries_execucao": N_("Automatic resumes"),
    "max_retries_documento": N_("Retries per document"),
}
FIELD_HINTS = {
    "taxonomia": N_("One per line: label: meaning. The meaning helps the model."),
    "prompt": N_("In your own words: what the documents are, and how to choose between similar labels."),
    "exemplos": N_("One per line: label: text. Where the text has a line break, write ↵."),
    "modelo": N_("The model's name at its provider."),
    "confianca_minima": N_("Labels below it are marked for a person to check."),
    "max_retries_execucao": N_("How often a stuck execution is resumed without progress, 0 to 10."),
    "max_retries_documento": N_("How often a failed document is retried, 0 to 10."),
}
FIELD_ERRORS = {
    "nome": N_("Enter a name of 1 to 100 characters."),
    "taxonomia": N_("Enter 1 to 200 labels, each of at most 100 characters."),
    "prompt": N_("At most 8,000 characters."),
    "exemplos": N_("At most 1,000 examples, each of 1 to 20,000 characters."),
    "modelo": N_("Enter the name of a model."),
    "confianca_minima": N_("Enter a number from 0 to 100."),
    "max_retries_execucao": N_("Enter a whole number from 0 to 10."),
    "max_retries_documento": N_("Enter a whole number from 0 to 10."),
}
# In the words of a person who classifies documents. Retoma's own messages serve for causes that are not here.
CAUSES: Mapping[str, str] = {
    WaitReason.DELAYED: N_("failed documents wait for their next attempt"),
    WaitReason.PERSON: N_("the documents would exceed a budget; raise it, or decide in the reviews"),
    WaitReason.UNDEFINED_STEP: N_(
        "no worker has this version of the classifier; start one: retoma worker retoma_apps.classifier"
    ),
    WaitReason.NO_WORKER: N_("no worker is running; start one: retoma worker retoma_apps.classifier"),
    WaitReason.NOT_CLAIMED: N_(
        "no running worker takes these documents; start one: retoma worker retoma_apps.classifier"
    ),
    WaitReason.QUEUE_PAUSED: N_("an operator paused the queue of the documents"),
    WaitReason.QUEUE_FULL: N_("as many documents are in progress as an operator allows"),
    WaitReason.CAPACITY: N_("all workers are busy"),
    WaitReason.POOL: N_("the model already handles as many documents at a time as allowed"),
    WaitReason.POOL_TOO_SMALL: N_("the pool of the model has no slots"),
    WaitReason.POOL_PAUSED: N_("the model's provider asked us to wait"),
    WaitReason.POOL_RATE: N_("the limit of starts per second is reached"),
    WaitReason.POOL_SHARE: N_("the project already uses its full share of the model"),
    WaitReason.PROVIDER_DOWN: N_("the model's provider does not respond"),
    WaitReason.PROVIDER_REJECTED: N_("the model's provider rejected our credentials; check the API key and billing"),
    WaitReason.NO_PROVIDER: N_("none of the configured models can be used now"),
    StuckCause.NO_PROGRESS: N_("a document exceeded its time limit without a heartbeat"),
}
UNKNOWN_CAUSE = N_("it makes no progress")
# The outcome of an action, by the name that the address of the next page carries.
NOTICES = {
    "criado": N_("The project has been created. Now upload documents."),
    "salvo": N_("The project has been saved. Executions that already started keep the previous settings."),
    "excluido": N_("The project has been deleted. Its executions are kept."),
    "retomada": N_("The execution has been resumed."),
    "retomada_sem_worker": N_(
        "The execution is resumed, but no worker is running. It continues when you start one: retoma worker "
        "retoma_apps.classifier"
    ),
    "refazendo": N_("Only the documents with errors are being rerun."),
    "retomada_antes": N_("The execution has been resumed first. Rerun the errors when it has finished."),
    "sem_erros": N_("There are no errors to rerun."),
    "cancelada": N_("The execution has been cancelled."),
    "corrigido": N_("The label has been corrected."),
    "confirmado": N_("The label has been confirmed."),
    "pulado": N_("The document has been skipped."),
    "ocupada": N_("Not now: the execution is running. Try again when it has finished."),
    "sem_rotulo": N_("Choose a label of this execution."),
    "varios": N_("The selected documents have been updated."),
    "nada_escolhido": N_("No document was selected."),
}
# What an error code means, and what to do about it.
ERROR_CODES = {
    "FILE_DAMAGED": N_("The file is damaged. Open it, save it again and upload it."),
    "FILE_EMPTY": N_("The file contains no text. Upload one with content."),
    "FILE_ENCRYPTED": N_("The file is protected by a password. Upload it without one."),
    "FILE_NEEDS_OCR": N_("A page is an image, and text recognition (OCR) is not installed on the workers."),
    "FILE_TOO_LARGE": N_("The file is too large. Split it or make it smaller."),
    "FILE_UNSUPPORTED": N_("This file type is not supported. Upload PDF, docx, an image or plain text."),
    "FILE_MISSING": N_("The file is no longer in the storage. Upload it again."),
    "NOT_INSTALLED": N_("A worker lacks a component: install retoma[classifier] there."),
    "NO_EXAMPLES": N_("The offline model has no examples to learn from. Add some to the project."),
    "TIMEOUT": N_("The document took more than 2 minutes. Rerun it; if it happens again, split or skip it."),
    "CPU_LIMIT": N_("Reading the document took too much processing time. Split or skip it."),
    "CRASHED": N_("The document crashes its reader. Save it again with another program, or skip it."),
    "OUT_OF_MEMORY": N_("Reading the document takes too much memory. Split or skip it."),
    "QUARANTINED": N_(
        "Processes died three times while they handled this document, so it is not tried again. Skip it, or upload it "
        "in another format."
    ),
    "WORKER_DIED": N_("The worker died while it was processing this document. Rerun it."),
    "INTERRUPTED": N_("It was interrupted. Rerun it."),
    "BLOCKED_LOOP": N_("A worker stopped responding while it was processing this document. Rerun it."),
    "RUN_STOPPED": N_("The execution stopped before this document was processed. Continue from where it stopped."),
    "STUCK": N_("The execution ended without progress. Continue from where it stopped."),
    "DEPENDENCY_FAILED": N_("An earlier step failed. Rerun the errors."),
    "TOO_LARGE": N_("The document has too much text. Split it."),
    "LLM_TIMEOUT": N_("The model did not respond in time. Rerun it later."),
    "LLM_UNAVAILABLE": N_("The model was not available. Rerun it later, or choose another model."),
    "LLM_INVALID_ANSWER": N_("The provider's response was not valid. Rerun it."),
    "LLM_INVALID_JSON": N_("The model did not respond in the requested format. Rerun it, or choose another model."),
    "LLM_CUT_SHORT": N_("The model's response was cut off. Rerun it, or choose another model."),
    "LLM_CONTENT_FILTERED": N_("The model refuses this text. Label it yourself, or choose another model."),
    "LLM_BAD_REQUEST": N_("The provider rejected the request. Check the project's model."),
    "LLM_NO_SUCH_MODEL": N_("This model does not exist. Choose another in the project and upload the documents again."),
    "LLM_TOO_LONG": N_("The text is too long for the model. Split it, or choose another model."),
    "LLM_ERROR": N_("The model failed. Rerun it later."),
    "RATE_LIMITED": N_("The provider asked us to slow down. Rerun it later."),
    "PROVIDER_DOWN": N_("The provider is down. Rerun it later."),
    "PROVIDER_REJECTED": N_("The provider rejected our credentials. Check the API key and billing, then rerun."),
}
OTHER_ERROR = N_("It failed for the reason shown next to it. Rerun it; if it happens again, skip it.")


def create_translator(language: str) -> Translator:
    """Return a translator for use outside a page."""
    return Translator(language, [LOCALE, CATALOGUES])


def describe_error_code(translator: Translator, code: str) -> str:
    """Explain what the error means and what to do."""
    return translator.translate(ERROR_CODES.get(code, OTHER_ERROR))
