from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from retoma import seconds
from retoma.reviews import Decision
from retoma.server.pages.page_context import TIME_ZONE_COOKIE
from retoma_apps.media.channels import get_channel
from retoma_apps.media.models import Channel
from retoma_apps.media.services import VARIABLES
from retoma_apps.providers.speech import KNOWN_VOICES
from retoma_apps.providers.speech.espeak import Espeak
from retoma_apps.providers.youtube import VideoToPublish, mark_of
from retoma_apps.videos.demo import run_demo
from retoma_apps.videos.pages import forms, messages
from retoma_apps.videos.pages.badges import STAGE_BADGES
from retoma_apps.videos.pipeline import longform, video_batch
from retoma_apps.videos.states import Stage
from tests.apps.videos.pages.test_reviews import text_of
from tests.apps.videos.pages.video_pages import FILM, PNG, VideoPages

ORDER = {
    "topic": "Como investir em renda fixa",
    "channel": "financas",
    "language": "",
    "start_at": "",
    "scheduled_for": "",
    "key": "1",
}
CHANNEL = {
    "language": "en",
    "voice": "espeak_en",
    "style": "calm",
    "seconds": "90",
    "budget": "2,5",
    "account": "",
    "revision": "0",
}
PLAINLY = "local-0123456789ab"


def test_every_stage_step_and_offline_service_has_a_message() -> None:
    assert set(STAGE_BADGES) == set(messages.STAGE_NAMES) == set(Stage)
    named = {step for pipeline in (longform, video_batch) for step in pipeline.steps}
    assert named - {"videos"} == set(messages.STEP_LABELS)
    assert set(VARIABLES) == set(messages.OFFLINE_NAMES) == set(messages.OFFLINE_SENTENCES)


async def test_an_empty_list_offers_to_order_a_video(video_pages: VideoPages) -> None:
    shown = text_of(await video_pages.read("/videos/", language="pt"))
    assert "Peça o primeiro vídeo" in shown
    assert "Publicar em" in shown


async def test_an_order_starts_one_video_however_often_its_form_is_sent(video_pages: VideoPages) -> None:
    for _ in range(2):
        sent = await video_pages.send("/videos/", ORDER | {"scheduled_for": "2031-02-04T12:00", "language": "pt-BR"})
        assert sent.status_code == 303, sent.text
    (run,) = await video_pages.client.runs.list()
    assert (run.tenant, run.input["topic"], run.input["language"]) == (
        "financas",
        "Como investir em renda fixa",
        "pt-BR",
    )
    assert run.input["scheduled_for"].startswith("2031-02-04T12:00:00")
    assert "Vídeo pedido." in await video_pages.read(sent.headers["location"], language="pt")


async def test_the_form_offers_the_bundled_topics_and_fills_in_the_chosen_one(video_pages: VideoPages) -> None:
    page = await video_pages.read("/videos/?new=1&topic=How%20coffee%20is%20made", language="en")
    assert "Without a language model, these topics can be ordered" in text_of(page)
    assert '<option value="Como o café é feito">Brazilian Portuguese</option>' in page
    assert re.search(r'value="How coffee is made"[^>]* list="topics"', page)


async def test_the_form_for_many_videos_lists_the_bundled_topics(video_pages: VideoPages) -> None:
    page = text_of(await video_pages.read("/videos/batches?new=1", language="en"))
    assert re.search("these topics can be ordered: .*How coffee is made", page)


async def test_a_topic_that_is_not_bundled_is_refused_at_its_field(video_pages: VideoPages) -> None:
    for language, sentence in (("en", "needs a language model: set OPENROUTER"), ("pt", "precisa de um modelo")):
        bounced = await video_pages.send("/videos/", ORDER | {"topic": "Xadrez <b>"}, language=language)
        assert bounced.status_code == 422
        (error,) = re.findall(r'id="a-topic" role="alert">.*?</svg>(.*?)</span>', bounced.text)
        assert re.search(f"Xadrez &lt;b&gt;.*?{sentence}.*?café é feito.*?How coffee is made", error)
        assert error[0].isupper()
    assert await video_pages.client.runs.list() == []


async def test_a_scheduled_video_shows_when_it_starts(video_pages: VideoPages) -> None:
    sent = await video_pages.send("/videos/", ORDER | {"start_at": "2030-02-04T12:00"})
    assert sent.status_code == 303, sent.text
    (run,) = await video_pages.client.runs.list()
    assert (run.state, run.run_at.isoformat()) == ("pending", "2030-02-04T12:00:00+00:00")
    for language, sentence in (("en", "Draft Starts on"), ("pt", "Rascunho Começa em")):
        assert sentence in text_of(await video_pages.read("/videos/", language=language))


async def test_the_times_of_an_order_are_in_the_viewers_zone(video_pages: VideoPages) -> None:
    video_pages.visitor.cookies[TIME_ZONE_COOKIE] = "America/Sao_Paulo"
    sent = await video_pages.send(
        "/videos/", ORDER | {"start_at": "2030-02-04T12:00", "scheduled_for": "2030-02-05T12:00"}
    )
    assert sent.status_code == 303, sent.text
    (run,) = await video_pages.client.runs.list()
    assert run.run_at.isoformat() == "2030-02-04T15:00:00+00:00"
    assert run.input["scheduled_for"].startswith("2030-02-05T15:00:00")
    assert "2030-02-04 12:00" in text_of(await video_pages.read("/videos/"))


async def test_order_errors_are_shown_at_their_fields(video_pages: VideoPages) -> None:
    for field, written, sentence in (
        ("topic", " ", "Descreva o tema com 3 a 300 caracteres."),
        ("topic", "x" * 301, "Descreva o tema com 3 a 300 caracteres."),
        ("channel", "", "Informe um nome de 1 a 100 caracteres, sem barra."),
        ("language", "fr", "Escolha um dos idiomas."),
        ("start_at", "amanhã", "Informe data e hora"),
        ("start_at", "2029-12-31T12:00", "Esse horário já passou."),
        ("scheduled_for", "amanhã", "Informe data e hora"),
        ("scheduled_for", "2029-12-31T12:00", "Esse horário já passou."),
    ):
        bounced = await video_pages.send("/videos/", ORDER | {field: written}, language="pt")
        assert bounced.status_code == 422
        assert re.search(f'id="a-{field}" role="alert">.*?{re.escape(sentence)}', bounced.text), field
        assert 'value="financas"' in bounced.text or field == "channel"
    assert await video_pages.client.runs.list() == []


async def test_the_list_shows_the_progress_of_a_video_and_links_to_its_review(video_pages: VideoPages) -> None:
    review = await video_pages.review("final_review")
    for language, stage, step in (("en", "Ready", "Final review"), ("pt", "Pronto", "Revisão final")):
        page = await video_pages.read("/videos/", language=language)
        assert f"Title plainly {str(review.run)[:13]} Como investir financas {stage} {step}" in text_of(page)
        assert f'href="/reviews/{review.id}"' in page
        assert 'href="/videos/channel/' not in page


async def test_the_list_says_that_a_review_is_decided(video_pages: VideoPages) -> None:
    await video_pages.approve(await video_pages.review("final_review"), undo=seconds(10))
    page = text_of(await video_pages.read("/videos/"))
    assert "decided, takes effect shortly" in page
    assert "Paused for review" not in page


async def test_the_list_links_to_the_published_video(video_pages: VideoPages) -> None:
    review = await video_pages.review("final_review")
    await video_pages.approve(review)
    await video_pages.work()
    page = await video_pages.read("/videos/")
    assert f'href="/videos/channel/{PLAINLY}"' in page
    assert "Published without its thumbnail: Not verified plainly" in text_of(page)
    assert "Published" in text_of(page)
    assert 'href="/reviews/' not in page


async def test_a_failed_video_shows_why_and_where_to_continue_it(video_pages: VideoPages) -> None:
    review = await video_pages.review("final_review")
    await video_pages.client.reviews.decide(
        review.id, Decision("approve", by="ana", value={"thumbnail": 1, "title": "refused"})
    )
    await video_pages.work()
    page = await video_pages.read("/videos/")
    assert "no such account plainly" in page
    assert f'<a class="btn small" href="/runs/{review.run}">' in page
    open_review = text_of(await video_pages.read(f"/reviews/{review.id}"))
    assert "The run has ended: failed. View the run" in open_review


async def test_a_rejected_video_shows_where_and_why(video_pages: VideoPages) -> None:
    review = await video_pages.review("script_review")
    await video_pages.client.reviews.decide(review.id, Decision("reject", by="ana", notes="fora do tema"))
    assert "Revisão do roteiro: fora do tema" in text_of(await video_pages.read("/videos/", language="pt"))


async def test_the_sample_says_where_it_is_published(video_pages: VideoPages) -> None:
    demo_messages = run_demo(video_pages.services, video_pages.client, "http://here", "en")
    await anext(demo_messages)
    (run,) = await video_pages.client.runs.list()
    while not (await video_pages.client.runs.get(run.id)).is_over:
        await video_pages.work()
        for review in await video_pages.client.reviews.list(run=run.id):
            await video_pages.approve(review)
    assert await anext(demo_messages) == f"“How coffee is made” was published: http://here/videos/channel/{PLAINLY}"


async def test_long_lists_have_a_next_page(video_pages: VideoPages) -> None:
    for number in range(21):
        await video_pages.begin(f"Tema {number}")
    page = await video_pages.read("/videos/")
    assert "Tema 0" not in page
    (older,) = re.findall(r'href="(/videos/\?before=[^"]+)"', page)
    assert "Tema 0" in await video_pages.read(older)
    assert "Tema 20" in await video_pages.read("/videos/?before=nothing")


async def test_every_page_says_what_is_offline_and_how_to_change_that(video_pages: VideoPages) -> None:
    for path in ("/videos/", "/videos/channels", "/videos/channels/financas", "/videos/metrics"):
        page = await video_pages.read(path, language="pt")
        assert "Feito nesta máquina, sem serviço externo:" in page, path
        assert all(f">{name}<" in page for names in VARIABLES.values() for name in names), path
    review = await video_pages.review("script_review")
    assert "Parte disto foi feita nesta máquina" in await video_pages.read(f"/reviews/{review.id}", language="pt")


def test_a_channel_survives_a_round_trip_through_its_form() -> None:
    channel = Channel(language="en", voice="espeak_en", style="a\nb", seconds=75, budget=2.5, account="main")
    assert (
        forms.parse_channel(forms.channel_form(channel).fields, messages.create_translator("en"), {"espeak": None})
        == channel
    )


async def test_a_channel_is_configured_with_its_form_and_new_orders_use_it(video_pages: VideoPages) -> None:
    saved = await video_pages.send("/videos/channels/financas", CHANNEL)
    assert saved.status_code == 303, saved.text
    assert await get_channel(video_pages.client, "financas") == Channel(
        language="en", voice="espeak_en", style="calm", seconds=90, budget=2.5
    )
    await video_pages.send("/videos/", ORDER | {"topic": "How bonds work"})
    (run,) = await video_pages.client.runs.list()
    assert (run.input["language"], run.input["seconds"], run.input["voice"]) == ("en", 90, "espeak_en")
    assert "espeak_en" in text_of(await video_pages.read("/videos/channels"))


async def test_channel_errors_are_shown_at_their_fields_and_nothing_is_saved(video_pages: VideoPages) -> None:
    for field, written in (
        ("voice", "azure_en_us_guy"),
        ("voice", "<script>"),
        ("voice", "espeak_pt_br"),
        ("seconds", "19"),
        ("seconds", "many"),
        ("budget", "-1"),
        ("budget", "nan"),
        ("language", ""),
        ("style", "x" * 501),
        ("account", "日本語"),
    ):
        bounced = await video_pages.send("/videos/channels/financas", CHANNEL | {field: written})
        assert bounced.status_code == 422, written
        assert re.search(f'id="a-{field}" role="alert"', bounced.text), written
    assert await video_pages.client.tenants.list_profiles() == []


async def test_voices_with_a_key_are_offered_and_others_of_the_same_provider_can_be_typed(
    video_pages: VideoPages,
) -> None:
    page = await video_pages.read("/videos/channels/financas")
    offered = set(re.findall(r'<option value="(\w+_\w+)">', page))
    assert offered == {name for name, voice in KNOWN_VOICES.items() if voice.provider == "espeak"}
    assert "another one: espeak_&lt;voice&gt;." in page
    mine = CHANNEL | {"voice": "elevenlabs_abc"}
    assert (await video_pages.send("/videos/channels/financas", mine)).status_code == 422
    video_pages.services.voices["elevenlabs"] = Espeak()  # type: ignore[index]
    assert (await video_pages.send("/videos/channels/financas", mine)).status_code == 303
    changed = await video_pages.read("/videos/channels/financas")
    assert 'value="elevenlabs_abc"' in changed
    assert "another one: elevenlabs_&lt;id&gt;, espeak_&lt;voice&gt;." in changed


async def test_a_colleagues_change_is_not_overwritten(video_pages: VideoPages) -> None:
    await video_pages.send("/videos/channels/financas", CHANNEL)
    late = await video_pages.send("/videos/channels/financas", CHANNEL | {"style": "loud"})
    assert late.status_code == 409
    assert "Someone else changed it in the meantime" in late.text
    assert "loud" in late.text
    assert (await get_channel(video_pages.client, "financas")).style == "calm"
    again = await video_pages.send("/videos/channels/financas", CHANNEL | {"style": "loud", "revision": "1"})
    assert again.status_code == 303


async def test_a_new_channel_is_created_by_its_name(video_pages: VideoPages) -> None:
    opened = await video_pages.send("/videos/channels", {"channel": "Saúde & bem-estar"})
    assert "Saúde &amp; bem-estar" in await video_pages.read(opened.headers["location"])
    for name in ("", " ", "a/b", "..", "x" * 101):
        assert (await video_pages.send("/videos/channels", {"channel": name})).status_code == 422


async def publish(video_pages: VideoPages, folder: Path, title: str = "Renda & fixa") -> str:
    film, picture = folder / "film.mp4", folder / "picture.png"
    film.write_bytes(FILM)
    picture.write_bytes(PNG)
    video = VideoToPublish(title=title, mark=mark_of(title), description="First & last", tags=("juros",))
    sent = await video_pages.channel.send(await video_pages.channel.begin(video, len(FILM)), film)
    await video_pages.channel.set_thumbnail(sent.video_id, picture)
    return sent.url


async def test_a_video_published_on_this_machine_can_be_watched(video_pages: VideoPages, tmp_path: Path) -> None:
    url = await publish(video_pages, tmp_path)
    await publish(video_pages, tmp_path, "Another")
    page = await video_pages.read(url)
    assert [each for each in ("Renda & fixa", "First & last", "juros", "Another") if each not in text_of(page)] == []
    assert "retoma-" not in text_of(page)
    part = await video_pages.visitor.get(f"{url}/video", Range="bytes=10-19")
    assert (part.status_code, part.content) == (206, FILM[10:20])
    assert part.headers["content-type"] == "video/mp4"
    assert part.headers["x-content-type-options"] == "nosniff"
    picture = await video_pages.visitor.get(f"{url}/thumbnail")
    assert (picture.content, picture.headers["content-type"]) == (PNG, "image/png")


async def test_only_video_ids_resolve_to_files(video_pages: VideoPages, tmp_path: Path) -> None:
    await publish(video_pages, tmp_path)
    for name in ("local-000000000000", "%2e%2e%2fvideos", "local-0123456789ab%00", "*"):
        for what in ("", "/video", "/thumbnail"):
            answer = await video_pages.visitor.get(f"/videos/channel/{name}{what}")
            assert (answer.status_code, FILM in answer.content) == (404, False), name


async def test_metrics_say_whether_their_targets_are_met(video_pages: VideoPages) -> None:
    empty = text_of(await video_pages.read("/videos/metrics"))
    assert empty.count("No data yet") == 5
    run = await video_pages.begin()
    sandbox = video_pages.visitor.api.sandbox
    for _ in range(4):
        await sandbox.work(advance_clock=False)
        await sandbox.clock.advance(timedelta(hours=3))
        (review,) = await video_pages.client.reviews.list(run=run)
        await video_pages.approve(review)
    await sandbox.work()
    shown = text_of(await video_pages.read("/videos/metrics", language="pt"))
    assert "Espera média por uma decisão 4 decisões 3 h menos de 2 h Fora da meta" in shown
    assert "Aprovados na primeira revisão 4 de 4 primeiras decisões 100% mais de 85% Na meta" in shown
    of_times = "vídeos prontos, publicados ou agendados: 1; metade em até 0 s"
    assert f"Do início ao fim, sem as revisões {of_times} 0 s menos de 30 min Na meta" in shown
    assert "Falhas definitivas 0 de 1 vídeo encerrado 0% menos de 2% Na meta" in shown
