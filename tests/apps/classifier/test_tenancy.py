from __future__ import annotations

from tests.apps.classifier.office import Office, a_project, refused


async def test_a_key_of_one_project_lists_and_uses_no_other_by_its_name(office: Office) -> None:
    mine = await office.project()
    await office.begin(mine)
    other = await office.key(await office.project(nome="Outro"))
    assert [each["id"] for each in (await office.api.get("/projetos", key=other)).json()["projetos"]] == ["outro"]
    assert (await office.api.get(f"/execucoes?projeto={mine}", key=other)).json()["execucoes"] == []
    answer = await office.start(mine, await office.send("a.txt", "x"), key=other)
    refused(answer, 404, "NOT_FOUND")
    refused(await office.api.post("/projetos", json=a_project(nome="Novo"), key=other), 409, "CONFLICT")


async def test_a_key_for_a_tenant_makes_that_tenants_project(office: Office) -> None:
    key = await office.key("equipe-a")
    answer = await office.api.post("/projetos", json=a_project(), key=key)
    assert (answer.status_code, answer.json()["id"]) == (201, "equipe-a")
    execution = (await office.start("equipe-a", await office.send("a.txt", "OFÍCIO"), key=key)).json()["id"]
    await office.work()
    shown = await office.api.get(f"/execucoes/{execution}/status-detalhado", key=key)
    assert shown.json()["status"] == "CONCLUIDO"


async def test_a_run_of_another_pipeline_is_no_execution(office: Office) -> None:
    """There is but one pipeline in this application; one that was taken out may still have runs."""
    execution = await office.begin(await office.project())
    async with office.client.database.connection() as connection:
        await connection.execute("update retoma.versions set pipeline = 'outra'")
    refused(await office.api.get(f"/execucoes/{execution}"), 404, "NOT_FOUND")
