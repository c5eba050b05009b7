from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, get_args
from uuid import UUID

import httpx2
import pytest

from retoma import Client
from retoma.records import REASON_MESSAGES, Role, Run, WaitReason
from retoma.server.request_limits import CONTENT_SECURITY_POLICY
from retoma.states import RunState
from retoma_apps.classifier.models import Category, Example, Project
from retoma_apps.classifier.operations import projects
from retoma_apps.classifier.pages import forms
from retoma_apps.classifier.pages.messages import (
    CAUSES,
    DOCUMENT_STATUS_NAMES,
    ERROR_CODES,
    STATUS_NAMES,
    create_translator,
    describe_error_code,
)
from retoma_apps.classifier.pages.overview import BLOCKING_CAUSES, CAUSES_FOR_PEOPLE, TEMPORARY_CAUSES
from retoma_apps.classifier.states import DOCUMENT_STATUSES, STATUSES
from retoma_apps.classifier.steps.reading.errors import Code
from retoma_apps.forms import InvalidForm
from tests.apps.classifier.classifier_app import EXAMPLES, TEXTS, ClassifierApp, make_project
from tests.apps.classifier.conftest import OpenClassifierApp
from tests.apps.classifier.test_executions import first_steps
from tests.apps.classifier.test_watchdog import begin_held_execution, claim_documents
from tests.engine.builders import pass_heartbeat_timeout
from tests.server.pages.test_pages import EVERYTHING, Elements
from tests.server.pages.visitor import Visitor, token_of, visible_text
from tests.server.people import add_person
from tests.wait_timeout import WAIT_TIMEOUT

BAD = b"\x7fELF is a program"
FORM = {
    "nome": "Peças",
    "taxonomia": "sentença: decide\nofício",
    "prompt": "Veja o fim da peça.",
    "exemplos": "sentença: Julgo procedente.\nofício: Solicito providências.",
    "modelo": "openai/gpt-5-mini",
    "confianca_minima": "62,5",
    "max_retries_execucao": "4",
    "max_retries_documento": "1",
}


class ClassifierPages:
    """The classifier, and a logged-in user of its page."""

    def __init__(self, classifier_app: ClassifierApp) -> None:
        self.classifier_app = classifier_app
        self.visitor = Visitor(classifier_app.api)

    async def read(self, path: str = "", language: str = "pt") -> str:
        answer = await self.visitor.get(f"/classificador/{path}", Accept_Language=language)
        assert answer.status_code == 200, answer.text
        return " ".join(visible_text(answer).split())

    async def token(self) -> str:
        return token_of(await self.visitor.get("/classificador/?novo=1"))

    async def submit_form(self, path: str, **fields: str) -> str:
        """Submit a form and return the page's message."""
        answer = await self.visitor.post(f"/classificador/{path}", {"csrf": await self.token(), **fields})
        assert answer.status_code == 303, answer.text
        there = answer.headers["location"].partition("#")[0]
        shown = await self.visitor.get(there, Accept_Language="pt")
        found = re.search(r'role="status">.*?<p>(.*?)</p>', shown.text)
        return found[1] if found else ""


@pytest.fixture
async def classifier_pages(open_classifier_app: OpenClassifierApp) -> AsyncIterator[ClassifierPages]:
    async with open_classifier_app(offline=True, scopes=None) as classifier_app:
        made = ClassifierPages(classifier_app)
        classifier_app.api.key = (await classifier_app.client.api_keys.create("test", ["admin"])).secret
        await made.visitor.log_in()
        yield made


def test_a_project_survives_a_round_trip_through_its_form() -> None:
    project = Project(
        nome="a",
        taxonomia=[Category(rotulo="a: b", descricao="two\nlines: of text"), Category(rotulo="c")],
        exemplos=[Example(texto="one\n\nthree: 3", rotulo="a: b"), Example(texto="x", rotulo="c")],
        confianca_minima=0.625,
    )
    assert forms.parse_project(forms.project_form(project).fields, create_translator("en")) == project


@pytest.mark.parametrize(
    ("field", "written", "sentence"),
    [
        ("nome", " ", "Informe um nome de 1 a 100 caracteres."),
        ("taxonomia", "", "Informe de 1 a 200 rótulos"),
        ("taxonomia", "Ofício\nofício", "O rótulo “ofício” está repetido."),
        ("exemplos", "sentença", "A linha 1 não tem rótulo"),
        ("exemplos", "\nrecurso: Apela.", "A linha 2 tem o rótulo “recurso”"),
        ("confianca_minima", "alta", "Informe um número de 0 a 100."),
        ("max_retries_documento", "2,5", "Informe um número inteiro de 0 a 10."),
        ("max_retries_execucao", "nan", "Informe um número inteiro de 0 a 10."),
    ],
)
def test_errors_are_shown_at_their_fields(field: str, written: str, sentence: str) -> None:
    with pytest.raises(InvalidForm) as caught:
        forms.parse_project(FORM | {field: written}, create_translator("pt"))
    assert sentence in caught.value.errors[field]


async def test_an_address_without_the_last_slash_redirects(classifier_pages: ClassifierPages) -> None:
    answer = await classifier_pages.visitor.get("/classificador")
    assert (answer.status_code, answer.headers["location"]) == (303, "/classificador/")


async def test_a_rejected_form_keeps_everything_that_was_entered(classifier_pages: ClassifierPages) -> None:
    value = FORM | {"nome": "", "exemplos": "sentença: Julgo.\nrecurso: Apela.", "csrf": await classifier_pages.token()}
    answer = await classifier_pages.visitor.post("/classificador/", value, Accept_Language="pt")
    assert answer.status_code == 422
    assert "sentença: Julgo.\nrecurso: Apela." in answer.text
    assert "não está entre os rótulos acima" in answer.text
    assert await projects.list_projects(classifier_pages.classifier_app.client) == []


async def test_a_project_is_created_changed_and_deleted_with_forms(classifier_pages: ClassifierPages) -> None:
    assert await classifier_pages.submit_form("", **FORM) == "Projeto criado. Agora envie documentos."
    [kept] = await projects.list_projects(classifier_pages.classifier_app.client)
    assert (kept.project.confianca_minima, kept.project.max_retries_execucao) == (0.625, 4)
    assert "salvo" in await classifier_pages.submit_form(kept.id, **FORM | {"nome": "Outras peças"}, revisao="1")
    assert (await projects.get_project(classifier_pages.classifier_app.client, kept.id)).project.nome == "Outras peças"
    assert "excluído" in await classifier_pages.submit_form(kept.id, excluir="1")
    assert await projects.list_projects(classifier_pages.classifier_app.client) == []


async def test_a_colleagues_change_is_shown_and_not_overwritten(classifier_pages: ClassifierPages) -> None:
    project = await classifier_pages.classifier_app.project()
    theirs = Project(**make_project(prompt="Words of a colleague."))
    await projects.update_project(classifier_pages.classifier_app.client, project, theirs, 1)
    value = FORM | {"prompt": "My words.", "revisao": "1", "csrf": await classifier_pages.token()}
    answer = await classifier_pages.visitor.post(f"/classificador/{project}", value, Accept_Language="pt")
    assert answer.status_code == 409
    assert "Outra pessoa alterou este projeto" in answer.text
    assert "My words." in answer.text
    assert "Words of a colleague." in answer.text
    assert (await projects.get_project(classifier_pages.classifier_app.client, project)).project == theirs
    assert 'name="revisao" value="2"' in answer.text


@pytest.mark.parametrize("language", ["pt", "en"])
async def test_errors_of_rejected_files_are_in_the_language_of_the_page(
    classifier_pages: ClassifierPages, language: str
) -> None:
    project = await classifier_pages.classifier_app.project()
    answer = await classifier_pages.visitor.get(f"/classificador/{project}", Accept_Language=language)
    elements = Elements()
    elements.feed(answer.text)
    (values,) = [value for name, value in elements.attributes if name == "data-refusals"]
    translator = create_translator(language)
    messages = {code: describe_error_code(translator, code) for code in get_args(Code)} | {
        "FILE_TOO_LARGE": translator.gettext(
            "Too large. A document may have 50 MB, and a zip 2,000 files of 2 GB in total. Split it or make it smaller."
        )
    }
    assert json.loads(values or "") == messages


async def test_offline_mode_is_shown_before_an_upload(classifier_pages: ClassifierPages) -> None:
    mute = await classifier_pages.classifier_app.project(nome="Sem", exemplos=[])
    few = await classifier_pages.classifier_app.project(nome="Poucos")
    assert "Trabalhando offline" in await classifier_pages.read()
    assert "não tem exemplos, e sem eles nada pode ser classificado" in await classifier_pages.read(mute)
    assert "Poucos exemplos para medir." in await classifier_pages.read(few)


async def test_the_measured_accuracy_is_displayed(classifier_pages: ClassifierPages) -> None:
    many = [
        {"texto": f"{each['texto']} {number}", "rotulo": each["rotulo"]} for number in range(8) for each in EXAMPLES
    ]
    project = await classifier_pages.classifier_app.project(exemplos=many)
    async with asyncio.timeout(WAIT_TIMEOUT):
        while "Medindo a precisão" in (shown := await classifier_pages.read(project)):
            continue
    assert "Acertou 100% de 24 exemplos que não tinha visto." in shown


async def test_an_execution_without_workers_is_not_shown_as_running(
    classifier_pages: ClassifierPages,
) -> None:
    execution = await classifier_pages.classifier_app.begin(await classifier_pages.classifier_app.project())
    await classifier_pages.classifier_app.worker.record_outcomes(
        await classifier_pages.classifier_app.worker.attempt(await classifier_pages.classifier_app.worker.claim(2))
    )
    await classifier_pages.classifier_app.worker.record_outcomes(
        await classifier_pages.classifier_app.worker.attempt(await classifier_pages.classifier_app.worker.claim(1))
    )
    assert "Classificação em andamento" in await classifier_pages.read(f"execucoes/{execution}")
    await classifier_pages.classifier_app.api.sandbox.clock.advance(timedelta(minutes=6))
    await classifier_pages.classifier_app.api.sandbox.run_watchdog()
    shown = await classifier_pages.read(f"execucoes/{execution}")
    assert "EM ANDAMENTO" not in shown.upper()
    assert "nenhum worker está em execução" in shown
    assert (await classifier_pages.classifier_app.status(execution))["status"] == "TRAVADO"
    assert "Continuar de onde parou" in shown
    assert "foi retomada, mas nenhum worker está em execução" in await classifier_pages.submit_form(
        f"execucoes/{execution}/retomar"
    )
    assert (
        "no running worker" in (await classifier_pages.classifier_app.post_action(execution, "retomar")).json()["aviso"]
    )


async def test_the_pages_and_the_api_report_the_same_about_a_frozen_worker(classifier_pages: ClassifierPages) -> None:
    app = classifier_pages.classifier_app
    execution = await app.begin(await app.project())
    await first_steps(app)
    assert len(await app.worker.claim(100)) == 3
    assert await pass_heartbeat_timeout(app.api.sandbox) != []
    await app.api.sandbox.clock.advance(timedelta(minutes=6))
    await app.api.sandbox.run_watchdog()
    shown = await app.status(execution)
    assert (shown["status"], shown["travamento"]["causa"]) == ("TRAVADO", "no_worker")
    for path in ("", f"execucoes/{execution}", f"execucoes/{execution}/partes"):
        page = await classifier_pages.read(path)
        assert ("TRAVADO" in page, "EM ANDAMENTO" in page) == (True, False), path
    assert "nenhum worker está em execução" in page


async def test_the_page_tells_the_user_whether_to_wait_or_to_act(classifier_pages: ClassifierPages) -> None:
    execution = await classifier_pages.classifier_app.begin(
        await classifier_pages.classifier_app.project(), {**TEXTS, "bad": BAD}
    )
    assert "Começa automaticamente: você não precisa fazer nada." in await classifier_pages.read(
        f"execucoes/{execution}"
    )
    await classifier_pages.classifier_app.api.sandbox.clock.advance(timedelta(minutes=1))
    assert "Precisa da sua atenção: nenhum worker está em execução" in await classifier_pages.read(
        f"execucoes/{execution}"
    )
    await classifier_pages.classifier_app.work()
    shown = await classifier_pages.read(f"execucoes/{execution}")
    assert "Um documento ficou sem rótulo" in shown
    assert "O que falhou e o que fazer 1 Este tipo de arquivo não é aceito. Envie PDF" in shown
    assert "nothing needs you" in await classifier_pages.read(
        f"execucoes/{await classifier_pages.classifier_app.run_execution()}", "en"
    )


@pytest.mark.parametrize(
    ("act", "message"),
    [("retomar", "A execução foi retomada."), ("reprocessar-erros", "Primeiro, a execução foi retomada.")],
)
async def test_either_button_resumes_a_stuck_execution(
    classifier_pages: ClassifierPages, act: str, message: str
) -> None:
    execution = await classifier_pages.classifier_app.begin(
        await classifier_pages.classifier_app.project(), {**TEXTS, "bad": BAD}
    )
    await classifier_pages.classifier_app.worker.record_outcomes(
        await classifier_pages.classifier_app.worker.attempt(await classifier_pages.classifier_app.worker.claim(2))
    )
    await classifier_pages.classifier_app.worker.claim(10)
    await classifier_pages.classifier_app.run_watchdog(timedelta(minutes=6))
    shown = await classifier_pages.read(f"execucoes/{execution}")
    assert "TRAVADO" in shown
    assert "A execução parou em 0 de 4 e nada se perdeu" in shown
    assert "um documento passou do tempo limite sem sinal de progresso" in shown
    assert "Rota /classificador/" in shown
    assert "um documento passou do tempo limite sem sinal de progresso \N{EN DASH} ainda travada" in shown
    assert message in await classifier_pages.submit_form(f"execucoes/{execution}/{act}")
    assert (await classifier_pages.classifier_app.client.runs.get(UUID(execution))).state is RunState.RUNNING


async def test_people_correct_labels_after_the_execution_has_ended(classifier_pages: ClassifierPages) -> None:
    execution = await classifier_pages.classifier_app.begin(
        await classifier_pages.classifier_app.project(), {**TEXTS, "bad": BAD}
    )
    assert "quando a execução terminar" in await classifier_pages.read(f"execucoes/{execution}")
    assert "Agora não" in await classifier_pages.submit_form(f"execucoes/{execution}/corrigir", n="1", rotulo="parecer")
    await classifier_pages.classifier_app.work()
    for act, fields, expected in (
        ("corrigir", {"n": "1", "rotulo": "parecer"}, "O rótulo foi corrigido."),
        ("corrigir", {"n": "4", "rotulo": "ofício"}, "O rótulo foi corrigido."),
        ("corrigir", {"n": "1", "rotulo": "recurso"}, "Escolha um rótulo desta execução."),
        ("confirmar", {"n": "2"}, "O rótulo foi confirmado."),
        ("pular", {"n": "3"}, "O documento foi pulado."),
    ):
        assert await classifier_pages.submit_form(f"execucoes/{execution}/{act}", **fields) == expected
        await classifier_pages.classifier_app.work()
    shown = await classifier_pages.classifier_app.documents(execution)
    assert {code: (each["status"], each["rotulo"], each["rotulo_modelo"]) for code, each in shown.items()} == {
        "a.txt": ("CONCLUIDO", "parecer", "sentença"),
        "b.txt": ("CONCLUIDO", "ofício", "ofício"),
        "c.txt": ("PULADO", None, None),
        "bad": ("CONCLUIDO", "ofício", None),
    }
    assert "parecer o modelo disse sentença" in await classifier_pages.read(f"execucoes/{execution}")


async def test_a_reviewer_confirms_and_corrects_and_sees_no_other_action(classifier_pages: ClassifierPages) -> None:
    app, visitor = classifier_pages.classifier_app, classifier_pages.visitor
    execution = await app.run_execution({**TEXTS, "bad": BAD}, confianca_minima=1.0)
    project = (await app.client.runs.get(UUID(execution))).tenant
    await add_person(app.client, "rita@example.com", Role.REVIEWER, project)
    await visitor.log_in(email="rita@example.com")
    path = f"/classificador/execucoes/{execution}"
    shown = await visitor.get(f"{path}?doc=3", Accept_Language="pt")
    assert {"Confirmar", "Corrigir"} <= set(read_buttons(shown))
    assert not {"Pular", "Sim, cancelar", "Refazer apenas erros"} & set(read_buttons(shown))
    csrf = token_of(shown)
    for act, fields, status in (
        ("corrigir", {"n": "1", "rotulo": "parecer"}, 303),
        ("confirmar", {"n": "2"}, 303),
        ("varios", {"n": "2", "acao": "confirmar"}, 303),
        ("varios", {"n": "3", "acao": "pular"}, 403),
        ("pular", {"n": "3"}, 403),
        ("reprocessar-erros", {}, 403),
    ):
        answer = await visitor.post(f"{path}/{act}", {"csrf": csrf, **fields})
        assert answer.status_code == status, act
        await app.work()
    found = await app.documents(execution)
    assert found["a.txt"]["rotulo"] == "parecer"
    assert "PULADO" not in {each["status"] for each in found.values()}


async def test_a_viewer_sees_no_action(classifier_pages: ClassifierPages) -> None:
    app, visitor = classifier_pages.classifier_app, classifier_pages.visitor
    execution = await app.run_execution({**TEXTS, "bad": BAD}, confianca_minima=1.0)
    project = (await app.client.runs.get(UUID(execution))).tenant
    await add_person(app.client, "vera@example.com", Role.VIEWER, project)
    await visitor.log_in(email="vera@example.com")
    shown = await visitor.get(f"/classificador/execucoes/{execution}?doc=1&corrigir=1", Accept_Language="pt")
    assert shown.status_code == 200
    assert not {"Confirmar", "Corrigir", "Pular", "Salvar"} & set(read_buttons(shown))
    assert "data-pick " not in shown.text


def read_buttons(shown: httpx2.Response) -> list[str]:
    """Return the words on the buttons and links that look like buttons."""
    found = re.findall(r'<(?:button|a)[^>]*class="btn[^>]*>(.*?)</(?:button|a)>', shown.text, re.DOTALL)
    return [re.sub(r"<kbd.*?</kbd>|<[^>]+>", "", each).strip() for each in found]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        ("corrigir", "O rótulo foi corrigido."),
        ("confirmar", "O rótulo foi confirmado."),
        ("pular", "O documento foi pulado."),
    ],
)
async def test_many_corrections_do_not_wait_for_the_summary(
    classifier_pages: ClassifierPages, monkeypatch: pytest.MonkeyPatch, act: str, message: str
) -> None:
    execution = await classifier_pages.classifier_app.run_execution()
    waited = Client.wait

    async def summed_up(client: Client, run: UUID, timeout: timedelta | None = None) -> Run:
        await classifier_pages.classifier_app.work()
        return await waited(client, run, timeout)

    monkeypatch.setattr(Client, "wait", summed_up)
    await classifier_pages.submit_form(f"execucoes/{execution}/corrigir", n="1", rotulo="parecer")
    assert await classifier_pages.submit_form(f"execucoes/{execution}/{act}", n="2", rotulo="sentença") == message


async def test_a_missing_label_cannot_be_confirmed(classifier_pages: ClassifierPages) -> None:
    execution = await classifier_pages.classifier_app.begin(await classifier_pages.classifier_app.project())
    await classifier_pages.submit_form(f"execucoes/{execution}/cancelar")
    await classifier_pages.classifier_app.work()
    fields = {"csrf": await classifier_pages.token(), "n": "1"}
    answer = await classifier_pages.visitor.post(f"/classificador/execucoes/{execution}/confirmar", fields)
    assert answer.status_code == 404


async def test_an_action_needs_the_token_of_its_session(classifier_pages: ClassifierPages) -> None:
    execution = await classifier_pages.classifier_app.begin(await classifier_pages.classifier_app.project())
    for act in ("retomar", "reprocessar-erros", "cancelar", "corrigir", "confirmar", "pular"):
        assert (
            await classifier_pages.visitor.post(f"/classificador/execucoes/{execution}/{act}", {"n": "1"})
        ).status_code == 403
    assert (await classifier_pages.visitor.post("/classificador/", FORM)).status_code == 403
    assert "cancelada" in await classifier_pages.submit_form(f"execucoes/{execution}/cancelar")


async def test_documents_are_found_by_status_by_name_and_by_low_confidence(classifier_pages: ClassifierPages) -> None:
    body: dict[str, str | bytes] = {**TEXTS, "bad": BAD, "vago.txt": "Julgo parecer ofício."}
    execution = await classifier_pages.classifier_app.run_execution(body, confianca_minima=0.5)

    async def codes(query: str) -> list[str]:
        answer = await classifier_pages.visitor.get(f"/classificador/execucoes/{execution}{query}")
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        return re.findall(r'data-c="(.*?)"', answer.text)

    assert await codes("") == list(body)
    assert await codes("?status=ERRO") == ["bad"]
    assert await codes("?status=REVER") == ["vago.txt"]
    assert await codes("?q=A.TX") == ["a.txt"]
    assert await codes("?status=nothing") == list(body)
    assert await codes("/partes?n=2,4,77,x") == ["b.txt", "bad"]
    assert await codes("/partes?n=2,4&status=ERRO") == ["bad"]
    assert await codes("/partes?n=1,5&status=REVER") == ["vago.txt"]
    assert await codes("/partes?n=1,2&q=A.TX") == ["a.txt"]
    assert "Nenhum documento encontrado." in await classifier_pages.read(f"execucoes/{execution}?q=nowhere")


async def test_documents_that_are_not_created_yet_are_among_the_changes(classifier_pages: ClassifierPages) -> None:
    execution = await classifier_pages.classifier_app.begin(await classifier_pages.classifier_app.project())
    shown = [
        (await classifier_pages.visitor.get(f"/classificador/execucoes/{execution}/partes?n=1,2{more}")).text
        for more in ("", "&status=PENDENTE", "&status=ERRO", "&q=b")
    ]
    assert [re.findall(r'data-c="(.*?)"', each) for each in shown] == [
        ["a.txt", "b.txt"],
        ["a.txt", "b.txt"],
        [],
        ["b.txt"],
    ]


async def test_stuck_episodes_and_the_cause_of_the_failure_are_shown(classifier_pages: ClassifierPages) -> None:
    execution = await begin_held_execution(classifier_pages.classifier_app, max_retries_execucao=1)
    await classifier_pages.classifier_app.run_watchdog(timedelta(minutes=6))
    assert "ainda travada" in await classifier_pages.read(f"execucoes/{execution}")
    await classifier_pages.classifier_app.run_watchdog(timedelta(seconds=6))
    await claim_documents(classifier_pages.classifier_app)
    await classifier_pages.classifier_app.run_watchdog(timedelta(minutes=6))
    await classifier_pages.classifier_app.run_watchdog(timedelta(minutes=1))
    shown = await classifier_pages.read(f"execucoes/{execution}")
    assert "ERRO" in shown
    assert "Causa um documento passou do tempo limite sem sinal de progresso Desde" in shown
    assert "Travamentos 2" in shown
    assert re.search(r"sem sinal de progresso a.txt não foi retomada .* a.txt \S+ \S+ retomada automaticamente", shown)
    assert "Continuar de onde parou" in shown
    assert "Reprocessar apenas erros" not in shown
    body = " ".join(
        visible_text(await classifier_pages.visitor.get(f"/runs/{execution}", Accept_Language="en")).split()
    )
    assert "and was not resumed; no completed work is lost." in body
    assert "Stuck episodes 2" in body
    assert await classifier_pages.submit_form(f"execucoes/{execution}/retomar") == "A execução foi retomada."
    assert "was not resumed; no completed" not in visible_text(
        await classifier_pages.visitor.get(f"/runs/{execution}", Accept_Language="en")
    )


async def test_usage_without_a_price_is_not_shown_as_free(
    classifier_pages: ClassifierPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = await classifier_pages.classifier_app.run_execution()
    assert "sem preço" not in await classifier_pages.read(f"execucoes/{execution}")

    async def charged(*_: object, **__: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(micros=0, unpriced=3)]

    monkeypatch.setattr(type(classifier_pages.classifier_app.client.costs), "get_totals", charged)
    assert "US$ 0,00 e 3 sem preço" in await classifier_pages.read(f"execucoes/{execution}")


async def test_hostile_text_creates_no_html_element(classifier_pages: ClassifierPages) -> None:
    label = EVERYTHING[:100]
    project = await classifier_pages.classifier_app.project(
        nome=label,
        taxonomia=[{"rotulo": label, "descricao": EVERYTHING}, {"rotulo": "ofício"}],
        exemplos=[{"texto": EVERYTHING, "rotulo": label}, EXAMPLES[1]],
    )
    execution = await classifier_pages.classifier_app.begin(project, {EVERYTHING[:150]: EVERYTHING, "bad": BAD})
    await classifier_pages.classifier_app.work()
    await assert_text_is_escaped(
        classifier_pages, "", project, f"{project}?editar=1", f"execucoes/{execution}?corrigir=1"
    )
    await assert_text_is_escaped(classifier_pages, f"execucoes/{execution}", f"execucoes/{execution}/partes?n=1,2")
    assert (
        await classifier_pages.submit_form(f"execucoes/{execution}/corrigir", n="1", rotulo="ofício")
        == "O rótulo foi corrigido."
    )
    await assert_text_is_escaped(classifier_pages, f"execucoes/{execution}")


async def assert_text_is_escaped(classifier_pages: ClassifierPages, *paths: str) -> None:
    for path in paths:
        answer = await classifier_pages.visitor.get(f"/classificador/{path}")
        elements = Elements()
        elements.feed(answer.text)
        assert "alert(1)" in answer.text
        assert elements.tags.isdisjoint({"img", "iframe", "object", "embed", "style", "base"}), path
        assert not [name for name, _ in elements.attributes if name.startswith("on")], path
        assert answer.text.count("<script") == answer.text.count('<script type="module" src="/static/'), path


def test_every_reason_to_wait_is_classified_or_only_named() -> None:
    only_named = {
        WaitReason.EXTERNAL_WORK,  # the classifier has no external work and no child runs
        WaitReason.CLEANUP,
        WaitReason.CHILD_RUN,
        WaitReason.QUEUE_PAUSED,  # an operator decided these
        WaitReason.QUEUE_FULL,
        WaitReason.POOL_TOO_SMALL,
        WaitReason.SUSPECT,  # these are the usual waits of a busy system
        WaitReason.CAPACITY,
        WaitReason.POOL,
        WaitReason.POOL_SHARE,
        WaitReason.NO_PROVIDER,  # the chain moves on when one of its pauses ends
    }
    classified = CAUSES_FOR_PEOPLE | BLOCKING_CAUSES | TEMPORARY_CAUSES
    assert set(WaitReason) - classified == only_named
    assert not CAUSES_FOR_PEOPLE & TEMPORARY_CAUSES


async def test_an_unknown_execution_is_not_found(classifier_pages: ClassifierPages) -> None:
    for path in ("execucoes/nothing", f"execucoes/{UUID(int=1)}", "nowhere"):
        assert (await classifier_pages.visitor.get(f"/classificador/{path}")).status_code == 404


def test_every_status_cause_and_code_has_a_message() -> None:
    assert set(STATUSES) <= set(STATUS_NAMES)
    assert set(DOCUMENT_STATUSES) <= set(DOCUMENT_STATUS_NAMES)
    with_values = {cause for cause, message in REASON_MESSAGES.items() if "%(" in message}
    missing_in_the_classifier = {WaitReason.EXTERNAL_WORK, WaitReason.CLEANUP, WaitReason.CHILD_RUN}
    assert with_values - set(CAUSES) == missing_in_the_classifier
    assert set(get_args(Code)) <= set(ERROR_CODES)
    assert {"TIMEOUT", "CRASHED", "OUT_OF_MEMORY", "QUARANTINED", "WORKER_DIED", "LLM_TIMEOUT"} <= set(ERROR_CODES)


async def test_a_large_batch_is_shown_page_by_page_with_its_map(classifier_pages: ClassifierPages) -> None:
    project = await classifier_pages.classifier_app.project()
    texts = {f"{number:03}.txt": TEXTS["a.txt"] for number in range(1, 121)}
    execution = await classifier_pages.classifier_app.begin(project, texts)
    path = f"/classificador/execucoes/{execution}"
    seen, address = [], path
    for _ in range(3):
        page = (await classifier_pages.visitor.get(address)).text
        seen.append(re.findall(r'data-c="(\d+)\.txt"', page))
        address = html.unescape(next(iter(re.findall(r'href="([^"]+)#documents" data-next-page', page)), ""))
    assert [len(each) for each in seen] == [50, 50, 20]
    assert [name for each in seen for name in each] == [f"{number:03}" for number in range(1, 121)]
    statuses = (await classifier_pages.visitor.get(f"{path}/mapa")).json()["statuses"]
    assert len(statuses) == 120


async def test_documents_are_found_by_their_label_and_by_their_error(classifier_pages: ClassifierPages) -> None:
    execution = await classifier_pages.classifier_app.run_execution({**TEXTS, "bad.bin": BAD})
    path = f"/classificador/execucoes/{execution}"
    whole = (await classifier_pages.visitor.get(path)).text
    (label,) = re.findall(r'href="([^"]+rotulo=of[^"]+)#documents"', whole)
    (code,) = re.findall(r'href="([^"]+erro=FILE_UNSUPPORTED)#documents"', whole)
    for address, expected in ((label, ["b.txt"]), (code, ["bad.bin"])):
        page = (await classifier_pages.visitor.get(html.unescape(address))).text
        assert re.findall(r'<tr id="d\d+" data-c="([^"]+)"', page) == expected


async def test_a_document_is_read_beside_its_label_without_becoming_html(classifier_pages: ClassifierPages) -> None:
    hostile = f"{TEXTS['a.txt']} {EVERYTHING}"
    execution = await classifier_pages.classifier_app.run_execution({"a.txt": hostile, "b.txt": TEXTS["b.txt"]})
    path = f"/classificador/execucoes/{execution}"
    for address in (f"{path}?doc=1", f"{path}/documento?doc=1"):
        page = (await classifier_pages.visitor.get(address)).text
        assert "&lt;script&gt;" in page
        assert "<script>alert" not in page
        assert 'data-next="2"' in page
    nothing = (await classifier_pages.visitor.get(f"{path}?doc=99")).text
    assert "data-number" not in nothing


async def test_several_documents_are_corrected_at_once(classifier_pages: ClassifierPages) -> None:
    execution = await classifier_pages.classifier_app.run_execution(TEXTS)
    path = f"/classificador/execucoes/{execution}"
    token = token_of(await classifier_pages.visitor.get(path))
    form: dict[str, Any] = {"csrf": token, "n": ["1", "2"], "acao": "corrigir", "rotulo": "parecer"}
    answer = await classifier_pages.visitor.post(f"{path}/varios", form)
    assert (answer.status_code, "notice=varios" in answer.headers["location"]) == (303, True)
    await classifier_pages.classifier_app.work()
    page = (await classifier_pages.visitor.get(f"{path}?rotulo=parecer")).text
    assert re.findall(r'<tr id="d\d+" data-c="([^"]+)"', page) == ["a.txt", "b.txt", "c.txt"]
    nothing = await classifier_pages.visitor.post(f"{path}/varios", {"csrf": token, "acao": "confirmar"})
    assert "notice=nada_escolhido" in nothing.headers["location"]


async def test_the_page_says_that_documents_wait_for_a_budget(classifier_app: ClassifierApp) -> None:
    await classifier_app.client.budgets.set("pecas-processuais", "month", 0)
    execution = await classifier_app.begin(await classifier_app.project())
    await classifier_app.work(advance_clock=False)
    assert classifier_app.standin.requests == []
    visitor = Visitor(classifier_app.api)
    await visitor.log_in()
    text = visible_text(await visitor.get(f"/classificador/execucoes/{execution}", Accept_Language="en"))
    assert "It needs your attention: the documents would exceed a budget; raise it, or decide in the reviews." in text
