from __future__ import annotations

from tests.apps.classifier.classifier_app import ClassifierApp, check_refusal, make_project


async def test_a_key_of_one_project_cannot_list_or_use_another_by_its_name(classifier_app: ClassifierApp) -> None:
    mine = await classifier_app.project()
    await classifier_app.begin(mine)
    other = await classifier_app.key(await classifier_app.project(nome="Outro"))
    assert [each["id"] for each in (await classifier_app.api.get("/projetos", key=other)).json()["projetos"]] == [
        "outro"
    ]
    assert (await classifier_app.api.get(f"/execucoes?projeto={mine}", key=other)).json()["execucoes"] == []
    answer = await classifier_app.start(mine, await classifier_app.send("a.txt", "x"), key=other)
    check_refusal(answer, 404, "NOT_FOUND")
    check_refusal(
        await classifier_app.api.post("/projetos", json=make_project(nome="Novo"), key=other), 409, "CONFLICT"
    )


async def test_a_key_of_a_tenant_creates_that_tenants_project(classifier_app: ClassifierApp) -> None:
    key = await classifier_app.key("equipe-a")
    answer = await classifier_app.api.post("/projetos", json=make_project(), key=key)
    assert (answer.status_code, answer.json()["id"]) == (201, "equipe-a")
    documents = await classifier_app.send("a.txt", "OFÍCIO", key=key)
    execution = (await classifier_app.start("equipe-a", documents, key=key)).json()["id"]
    await classifier_app.work()
    shown = await classifier_app.api.get(f"/execucoes/{execution}/status-detalhado", key=key)
    assert shown.json()["status"] == "CONCLUIDO"


async def test_a_document_that_somebody_else_has_uploaded_is_not_found(classifier_app: ClassifierApp) -> None:
    key = await classifier_app.key("equipe-a")
    await classifier_app.api.post("/projetos", json=make_project(), key=key)
    uploaded = await classifier_app.send("a.txt", "OFÍCIO", key=await classifier_app.key("equipe-b"))
    unknown = [{"nome": "a.txt", "arquivo": {**uploaded[0]["arquivo"], "file": "0" * 64}}]
    answers = [await classifier_app.start("equipe-a", documents, key=key) for documents in (uploaded, unknown)]
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {
        (422, "o arquivo de 'a.txt' não foi encontrado: envie-o primeiro para /arquivos")
    }


async def test_a_run_of_another_pipeline_is_not_an_execution(classifier_app: ClassifierApp) -> None:
    """This application has one pipeline; a removed one may still have runs."""
    execution = await classifier_app.begin(await classifier_app.project())
    async with classifier_app.client.database.connection() as connection:
        await connection.execute("update retoma.versions set pipeline = 'outra'")
    check_refusal(await classifier_app.api.get(f"/execucoes/{execution}"), 404, "NOT_FOUND")
