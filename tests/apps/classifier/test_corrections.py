from __future__ import annotations

from retoma import minutes
from tests.apps.classifier.classifier_app import ClassifierApp, check_refusal
from tests.apps.classifier.test_executions import BAD
from tests.apps.classifier.test_watchdog import begin_held_execution


async def correct(classifier_app: ClassifierApp, execution: str, code: str, label: str) -> None:
    answer = await classifier_app.post_action(execution, "correcoes", json={"codigo": code, "rotulo": label})
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["codigo"], shown["rotulo"], shown["corrigido"]) == (code, label, True)
    await classifier_app.work()


async def test_a_persons_label_replaces_the_models_label_which_stays_on_record(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution()
    for label in ("parecer", "ofício"):  # a second correction still refers to the model's label
        await correct(classifier_app, execution, "a.txt", label)
    found = (await classifier_app.documents(execution))["a.txt"]
    assert (found["rotulo"], found["rotulo_modelo"], found["rever"]) == ("ofício", "sentença", False)
    shown = (await classifier_app.api.get(f"/execucoes/{execution}/resultados")).json()
    assert shown["resumo"] == {"rotulos": {"ofício": 2, "parecer": 1}, "pouca_confianca": 0, "corrigidos": 1}
    assert shown["status"] == "CONCLUIDO"


async def test_a_persons_label_lets_a_given_up_execution_continue(classifier_app: ClassifierApp) -> None:
    execution = await begin_held_execution(classifier_app, max_retries_execucao=0)
    await classifier_app.run_watchdog(minutes(5))
    await classifier_app.run_watchdog(minutes(1))
    assert (await classifier_app.status(execution))["status"] == "ERRO"
    await correct(classifier_app, execution, "a.txt", "parecer")
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 3)


async def test_a_persons_label_for_an_unreadable_document_survives_a_rerun(
    classifier_app: ClassifierApp,
) -> None:
    execution = await classifier_app.run_execution(BAD)
    await correct(classifier_app, execution, "vazio.txt", "parecer")
    assert (await classifier_app.status(execution))["contagem"]["ERRO"] == 1
    classifier_app.fix_model()
    answer = await classifier_app.post_action(execution, "reprocessar-erros")
    assert answer.json()["documentos"] == 1
    await classifier_app.work()
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 4)
    found = (await classifier_app.documents(execution))["vazio.txt"]
    assert (found["rotulo"], found["corrigido"], found["rotulo_modelo"]) == ("parecer", True, None)
    assert (await classifier_app.post_action(execution, "reprocessar-erros")).json()["documentos"] == 0


async def test_an_execution_succeeds_once_people_have_labelled_every_failed_document(
    classifier_app: ClassifierApp,
) -> None:
    execution = await classifier_app.run_execution(BAD)
    await correct(classifier_app, execution, "vazio.txt", "parecer")
    await correct(classifier_app, execution, "b.txt", "ofício")
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"


async def test_a_label_outside_the_taxonomy_is_rejected(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution()
    answer = await classifier_app.post_action(execution, "correcoes", json={"codigo": "a.txt", "rotulo": "bula"})
    assert "'bula' is not in the taxonomy" in check_refusal(answer, 422, "INVALID_INPUT")
    unknown = await classifier_app.post_action(execution, "correcoes", json={"codigo": "z.txt", "rotulo": "ofício"})
    assert "there is no label of z.txt" in check_refusal(unknown, 404, "NOT_FOUND")
    assert not (await classifier_app.documents(execution))["a.txt"]["corrigido"]


async def test_labels_of_a_running_execution_cannot_be_corrected(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project(), BAD)
    await classifier_app.work(advance_clock=False)
    answer = await classifier_app.post_action(execution, "correcoes", json={"codigo": "a.txt", "rotulo": "ofício"})
    check_refusal(answer, 409, "RUN_BUSY")


async def test_documents_that_a_person_skips_are_not_errors(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(BAD)
    answer = await classifier_app.post_action(execution, "pular", json={"codigos": ["b.txt", "vazio.txt"]})
    assert answer.status_code == 200
    await classifier_app.work()
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["contagem"]["PULADO"], shown["erros"]) == ("CONCLUIDO", 2, [])
    check_refusal(await classifier_app.post_action(execution, "pular", json={"codigos": ["z.txt"]}), 404, "NOT_FOUND")


async def test_labels_with_low_confidence_are_marked_for_a_person(classifier_app: ClassifierApp) -> None:
    def unsure(body: dict[str, object]) -> dict[str, object]:
        return {"rotulo": "ofício", "confianca": 0.59, "justificativa": "talvez"}

    classifier_app.standin._answer = unsure
    execution = await classifier_app.run_execution()
    assert {each["rever"] for each in (await classifier_app.documents(execution)).values()} == {True}
    await correct(classifier_app, execution, "a.txt", "ofício")
    assert not (await classifier_app.documents(execution))["a.txt"]["rever"]
    shown = (await classifier_app.api.get(f"/execucoes/{execution}/resultados")).json()
    assert shown["resumo"]["pouca_confianca"] == 2
