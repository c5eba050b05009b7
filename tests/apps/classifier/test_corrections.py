from __future__ import annotations

from retoma import minutes
from tests.apps.classifier.office import Office, refused
from tests.apps.classifier.test_executions import BAD
from tests.apps.classifier.test_watchdog import held


async def correct(office: Office, execution: str, code: str, label: str) -> None:
    answer = await office.act(execution, "correcoes", json={"codigo": code, "rotulo": label})
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["codigo"], shown["rotulo"], shown["corrigido"]) == (code, label, True)
    await office.work()


async def test_a_persons_label_takes_the_place_of_the_models_which_stays_known(office: Office) -> None:
    execution = await office.done()
    for label in ("parecer", "ofício"):  # who corrects twice corrects the model's label
        await correct(office, execution, "a.txt", label)
    found = (await office.documents(execution))["a.txt"]
    assert (found["rotulo"], found["rotulo_modelo"], found["rever"]) == ("ofício", "sentença", False)
    shown = (await office.api.get(f"/execucoes/{execution}/resultados")).json()
    assert shown["resumo"] == {"rotulos": {"ofício": 2, "parecer": 1}, "pouca_confianca": 0, "corrigidos": 1}
    assert shown["status"] == "CONCLUIDO"


async def test_a_persons_label_lets_an_execution_that_was_given_up_go_on(office: Office) -> None:
    execution = await held(office, max_retries_execucao=0)
    await office.watch(minutes(5))
    await office.watch(minutes(1))
    assert (await office.status(execution))["status"] == "ERRO"
    await correct(office, execution, "a.txt", "parecer")
    shown = await office.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 3)


async def test_a_persons_label_for_what_could_not_be_read_stays_when_errors_are_made_again(office: Office) -> None:
    execution = await office.done(BAD)
    await correct(office, execution, "vazio.txt", "parecer")
    assert (await office.status(execution))["contagem"]["ERRO"] == 1
    office.mend()
    answer = await office.act(execution, "reprocessar-erros")
    assert answer.json()["documentos"] == 1
    await office.work()
    shown = await office.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 4)
    found = (await office.documents(execution))["vazio.txt"]
    assert (found["rotulo"], found["corrigido"], found["rotulo_modelo"]) == ("parecer", True, None)
    assert (await office.act(execution, "reprocessar-erros")).json()["documentos"] == 0


async def test_when_people_have_labelled_all_that_failed_the_execution_has_ended_well(office: Office) -> None:
    execution = await office.done(BAD)
    await correct(office, execution, "vazio.txt", "parecer")
    await correct(office, execution, "b.txt", "ofício")
    assert (await office.status(execution))["status"] == "CONCLUIDO"


async def test_a_label_that_is_not_of_the_taxonomy_is_refused(office: Office) -> None:
    execution = await office.done()
    answer = await office.act(execution, "correcoes", json={"codigo": "a.txt", "rotulo": "bula"})
    assert "'bula' is not in the taxonomy" in refused(answer, 422, "INVALID_INPUT")
    unknown = await office.act(execution, "correcoes", json={"codigo": "z.txt", "rotulo": "ofício"})
    assert "there is no label of z.txt" in refused(unknown, 404, "NOT_FOUND")
    assert not (await office.documents(execution))["a.txt"]["corrigido"]


async def test_labels_of_an_execution_at_work_are_not_corrected(office: Office) -> None:
    execution = await office.begin(await office.project(), BAD)
    await office.work(until_later=False)
    answer = await office.act(execution, "correcoes", json={"codigo": "a.txt", "rotulo": "ofício"})
    refused(answer, 409, "AT_WORK")


async def test_documents_that_a_person_leaves_out_are_no_errors(office: Office) -> None:
    execution = await office.done(BAD)
    answer = await office.act(execution, "pular", json={"codigos": ["b.txt", "vazio.txt"]})
    assert answer.status_code == 200
    await office.work()
    shown = await office.status(execution)
    assert (shown["status"], shown["contagem"]["PULADO"], shown["erros"]) == ("CONCLUIDO", 2, [])
    refused(await office.act(execution, "pular", json={"codigos": ["z.txt"]}), 404, "NOT_FOUND")


async def test_labels_of_little_confidence_are_marked_for_a_person(office: Office) -> None:
    def unsure(body: dict[str, object]) -> dict[str, object]:
        return {"rotulo": "ofício", "confianca": 0.59, "justificativa": "talvez"}

    office.standin._answer = unsure
    execution = await office.done()
    assert {each["rever"] for each in (await office.documents(execution)).values()} == {True}
    await correct(office, execution, "a.txt", "ofício")
    assert not (await office.documents(execution))["a.txt"]["rever"]
    shown = (await office.api.get(f"/execucoes/{execution}/resultados")).json()
    assert shown["resumo"]["pouca_confianca"] == 2
