from __future__ import annotations

from tests.apps.classifier.office import Office, a_project, refused
from tests.apps.classifier.test_executions import BAD

READS = ("", "/status-detalhado", "/erros", "/documentos", "/resultados", "/exportar", "/arquivo?codigo=a.txt")
ACTS = {
    "retomar": None,
    "reprocessar-erros": None,
    "cancelar": None,
    "correcoes": {"codigo": "a.txt", "rotulo": "ofício"},
    "pular": {"codigos": ["a.txt"]},
}


async def test_a_key_of_one_project_sees_nothing_of_another(office: Office) -> None:
    execution = await office.done(BAD)
    other = await office.key(await office.project(nome="Outro"))
    before = await office.documents(execution)
    for path in READS:
        refused(await office.api.get(f"/execucoes/{execution}{path}", key=other), 404, "NOT_FOUND")
    for act, body in ACTS.items():
        refused(await office.act(execution, act, json=body, key=other), 404, "NOT_FOUND")
    assert await office.documents(execution) == before
    for query in ("", "?projeto=pecas-processuais"):
        assert (await office.api.get(f"/execucoes{query}", key=other)).json()["execucoes"] == []


async def test_a_key_of_one_project_sees_and_changes_no_other(office: Office) -> None:
    mine = await office.project()
    other = await office.key(await office.project(nome="Outro"))
    assert [each["id"] for each in (await office.api.get("/projetos", key=other)).json()["projetos"]] == ["outro"]
    for method, more in (("GET", ""), ("GET", "/precisao"), ("PUT", ""), ("DELETE", "")):
        body = a_project() if method == "PUT" else None
        answer = await office.api.call(method, f"/projetos/{mine}{more}", json=body, key=other)
        refused(answer, 404, "NOT_FOUND")
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


async def test_who_may_only_read_changes_nothing(office: Office) -> None:
    execution = await office.done(BAD)
    reader = await office.key("pecas-processuais", "runs:read")
    for path in READS:
        assert (await office.api.get(f"/execucoes/{execution}{path}", key=reader)).status_code == 200
    for act, body in ACTS.items():
        refused(await office.act(execution, act, json=body, key=reader), 403, "SCOPE_MISSING")
    refused(await office.upload("a.txt", "x", key=reader), 403, "SCOPE_MISSING")
    refused(await office.api.post("/projetos", json=a_project(), key=reader), 403, "SCOPE_MISSING")
    refused(await office.start("pecas-processuais", [{"nome": "a"}], key=reader), 403, "SCOPE_MISSING")


async def test_nobody_is_let_in_without_a_key(office: Office) -> None:
    execution = await office.begin(await office.project())
    for path in ("/projetos", "/execucoes", f"/execucoes/{execution}/status-detalhado"):
        refused(await office.api.get(path, key=None), 401, "KEY_NEEDED")
    refused(await office.upload("a.txt", "x", key=None), 401, "KEY_NEEDED")


async def test_a_run_of_another_pipeline_is_no_execution(office: Office) -> None:
    """There is but one pipeline in this application; one that was taken out may still have runs."""
    execution = await office.begin(await office.project())
    async with office.client.database.connection() as connection:
        await connection.execute("update retoma.versions set pipeline = 'outra'")
    refused(await office.api.get(f"/execucoes/{execution}"), 404, "NOT_FOUND")
