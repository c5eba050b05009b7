from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.apps.classifier.classifier_app import EXAMPLES, ClassifierApp, check_refusal, make_project
from tests.apps.classifier.conftest import OpenClassifierApp
from tests.apps.classifier.documents import LABELS, text_of


async def test_a_project_has_the_field_names_and_limits_of_the_specification(classifier_app: ClassifierApp) -> None:
    answer = await classifier_app.api.post("/projetos", json=make_project())
    assert answer.status_code == 201
    shown = answer.json()
    assert shown.pop("alterado_em").startswith("2030-01-01T12:00:00")
    assert shown == {
        "id": "pecas-processuais",
        "nome": "Peças processuais",
        "taxonomia": [{"rotulo": label, "descricao": ""} for label in ("sentença", "ofício", "parecer")],
        "prompt": "",
        "exemplos": EXAMPLES,
        "modelo": "openai/gpt-5-mini",
        "max_retries_execucao": 3,
        "max_retries_documento": 2,
        "confianca_minima": 0.6,
        "revisao": 1,
    }
    assert (
        (await classifier_app.api.get("/projetos/pecas-processuais")).headers["ETag"] == answer.headers["ETag"] == '"1"'
    )


async def test_two_projects_with_the_same_name_have_different_ids(classifier_app: ClassifierApp) -> None:
    made = await asyncio.gather(*(classifier_app.project() for _ in range(3)))
    assert sorted(made) == ["pecas-processuais", "pecas-processuais-2", "pecas-processuais-3"]
    listed = (await classifier_app.api.get("/projetos")).json()["projetos"]
    assert [(each["id"], each["exemplos"]) for each in listed] == [(each, 3) for each in sorted(made)]


async def test_a_change_based_on_an_old_project_is_rejected(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project()
    path, changed = f"/projetos/{project}", make_project(nome="Outras", max_retries_documento=5)
    answer = await classifier_app.api.call("PUT", path, json=changed, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.headers["ETag"]) == (200, '"2"')
    late = await classifier_app.api.call("PUT", path, json=make_project(), headers={"If-Match": '"1"'})
    assert "read it again" in check_refusal(late, 412, "PRECONDITION_FAILED")
    assert (await classifier_app.api.get(path)).json()["nome"] == "Outras"
    assert (await classifier_app.api.call("PUT", path, json=make_project())).json()["revisao"] == 3


async def test_one_of_many_concurrent_changes_to_the_same_version_succeeds(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project()
    answers = await asyncio.gather(
        *(
            classifier_app.api.call(
                "PUT", f"/projetos/{project}", json=make_project(prompt=f"{n}"), headers={"If-Match": '"1"'}
            )
            for n in range(8)
        )
    )
    assert min(answer.status_code for answer in answers) == 200
    assert {answer.status_code for answer in answers if answer.status_code != 200} <= {409, 412}
    assert (await classifier_app.api.get(f"/projetos/{project}")).json()["revisao"] == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nome": ""}, "nome"),
        ({"nome": "a\x00b"}, "nome"),
        ({"nome": "n" * 101}, "nome"),
        ({"taxonomia": []}, "taxonomia"),
        ({"taxonomia": [{"rotulo": "Ofício"}, {"rotulo": "ofício"}], "exemplos": []}, "occurs twice"),
        ({"exemplos": [{"texto": "x", "rotulo": "bula"}]}, "which is not in the taxonomy"),
        ({"max_retries_execucao": -1}, "max_retries_execucao"),
        ({"max_retries_documento": 11}, "max_retries_documento"),
        ({"confianca_minima": 1.5}, "confianca_minima"),
        ({"backoff_inicial": 1}, "backoff_inicial"),
        ({"backoff_multiplicador": 3}, "backoff_multiplicador"),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
async def test_an_invalid_project_is_rejected_with_the_reason(
    classifier_app: ClassifierApp, wrong: dict[str, Any], message: str
) -> None:
    answer = await classifier_app.api.post("/projetos", json=make_project(**wrong))
    check_refusal(answer, 422, "INVALID_REQUEST")
    assert message in answer.text
    assert (await classifier_app.api.get("/projetos")).json() == {"projetos": []}


async def test_executions_outlive_their_deleted_project(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution()
    path = "/projetos/pecas-processuais"
    assert (await classifier_app.api.call("DELETE", path)).status_code == 204
    for method in ("GET", "DELETE"):
        assert "there is no project" in check_refusal(await classifier_app.api.call(method, path), 404, "NOT_FOUND")
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"
    assert len((await classifier_app.api.get("/execucoes")).json()["execucoes"]) == 1


async def test_the_id_of_a_deleted_project_with_executions_is_not_reused(classifier_app: ClassifierApp) -> None:
    await classifier_app.run_execution()
    for project, after in (("pecas-processuais", "pecas-processuais-2"), ("pecas-processuais-2",) * 2):
        assert (await classifier_app.api.call("DELETE", f"/projetos/{project}")).status_code == 204
        assert await classifier_app.project() == after
    assert (await classifier_app.api.get("/execucoes", params={"projeto": after})).json()["execucoes"] == []


async def test_the_accuracy_of_the_offline_model_is_measured_and_shown(open_classifier_app: OpenClassifierApp) -> None:
    async with open_classifier_app(offline=True) as classifier_app:
        taxonomy = [{"rotulo": label} for label in LABELS]
        examples = [
            {"texto": "\n".join(text_of(label, number)), "rotulo": label} for label in LABELS for number in range(5)
        ]
        project = await classifier_app.project(taxonomia=taxonomy, exemplos=examples)
        body = (await classifier_app.api.get(f"/projetos/{project}/precisao")).json()
        assert body.pop("acerto") > 0.8
        assert body == {
            "offline": True,
            "medindo": False,
            "exemplos": 30,
            "medidos": 30,
            "sem_medida": [],
            "poucos_para_medir": False,
        }
        few = await classifier_app.project(nome="Poucos", exemplos=EXAMPLES[:1])
        body = (await classifier_app.api.get(f"/projetos/{few}/precisao")).json()
        assert (body["acerto"], body["medidos"], body["poucos_para_medir"]) == (None, 0, True)
        mute = await classifier_app.project(nome="Mudo", exemplos=[each | {"texto": "!"} for each in EXAMPLES])
        assert (await classifier_app.api.get(f"/projetos/{mute}/precisao")).json()["acerto"] is None


async def test_a_nul_character_in_a_name_is_rejected_without_a_server_error(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    for path in ("/projetos/%00", "/execucoes?projeto=%00", f"/execucoes/{execution}/documentos?busca=%00"):
        check_refusal(await classifier_app.api.get(path), 422, "INVALID_INPUT")


async def test_examples_of_a_single_label_leave_every_document_to_a_person(
    open_classifier_app: OpenClassifierApp,
) -> None:
    async with open_classifier_app(offline=True) as classifier_app:
        execution = await classifier_app.begin(await classifier_app.project(exemplos=EXAMPLES[:1]))
        await classifier_app.work()
        shown = await classifier_app.documents(execution)
        assert {(each["rotulo"], each["rever"]) for each in shown.values()} == {("sentença", True)}


@pytest.mark.parametrize(
    ("label", "status"),
    [(" z ", 422), ("q\\", 422), ("x\u2028y", 422), ("", 422), ("a\nb", 422), ("a: b, c", 201), ("z", 201)],
    ids=["spaces", "backslash", "separator", "none", "break", "colon", "short"],
)
async def test_a_label_must_be_displayable_in_a_form(classifier_app: ClassifierApp, label: str, status: int) -> None:
    answer = await classifier_app.api.post("/projetos", json=make_project(taxonomia=[{"rotulo": label}], exemplos=[]))
    assert answer.status_code == status
