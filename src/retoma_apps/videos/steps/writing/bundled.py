"""The offline writer: it tells the topics that come with Retoma, as they are written there.

The same brief and feedback always produce the same script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retoma import GiveUp
from retoma.errors import InvalidInput
from retoma.translations import N_
from retoma_apps.media.content_words import content_words
from retoma_apps.media.models import Language
from retoma_apps.media.script_texts import SCRIPT_TEXTS
from retoma_apps.media.services import UsageCallback
from retoma_apps.media.spoken_text import fold, seconds_for_words, word_count, words_for_seconds
from retoma_apps.providers import llm
from retoma_apps.providers.provider import format_variables
from retoma_apps.providers.topics import Topic, TopicScene, find_topic, list_topics
from retoma_apps.videos.models import Brief, Fact, Scene, Script, Source
from retoma_apps.videos.steps.writing.drafts import build_script, select_new_facts
from retoma_apps.videos.steps.writing.port import WritingRequest

SHORTER_FACTOR, LONGER_FACTOR = 0.7, 1.4
_LENGTH_TOLERANCE = 1.15  # a little over the target length is better than a gap
_LEAST_WORDS = 40
_SHORTER = re.compile(r"\b(?:mais (?:curt[oa]|breve)|menor|encurt\w+|short(?:er|en)|briefer)\b", re.IGNORECASE)
_LONGER = re.compile(r"\b(?:mais (?:long[oa]|compridos?)|maior|along\w+|longer|lengthen)\b", re.IGNORECASE)
_POLITE_WORDS = frozenset(
    re.findall(
        r"\w+",
        "deixe deixar faça fazer favor pouco roteiro texto vídeo quero ficar ficou bem fale falar diga conte sobre "
        "make please little script text video should want bit much tell talk speak mention say about",
    )
)
_NEEDS_MODEL = N_(
    "the topic “%(topic)s” needs a language model: set %(variables)s, or choose one of the topics that come with "
    "Retoma: %(titles)s"
)


class NeedsLanguageModel(InvalidInput):
    """The topic is not bundled, and no language model is configured. The message lists the bundled topics."""

    def __init__(self, topic: str, language: Language) -> None:
        topics = sorted(list_topics(), key=lambda each: each.language != language)
        titles = "; ".join(f"{each.title} ({each.language})" for each in topics)
        super().__init__(_NEEDS_MODEL, topic=topic[:120], variables=format_variables(llm.PROVIDERS), titles=titles)


class BundledWriter:
    """Costs nothing. It knows only the bundled topics."""

    provider = "offline"
    name = "offline/bundled"
    follows_notes = False
    is_offline = True

    @property
    def topics(self) -> Sequence[Topic] | None:
        return list_topics()

    async def research(self, request: WritingRequest, *, on_usage: UsageCallback | None = None) -> list[Fact]:
        topic = _get_topic(request.brief)
        facts = [Fact(text=fact.text, source=_to_source(topic, fact.source)) for fact in topic.facts]
        return select_new_facts(facts, request.facts)

    async def script(self, request: WritingRequest, *, on_usage: UsageCallback | None = None) -> Script:
        brief, feedback_history = request.brief, request.feedback_history
        topic = _get_topic(brief)
        scenes = _choose_scenes(topic, brief.seconds, feedback_history)
        told = {fold(fact.text) for scene in scenes for fact in scene.facts}
        used = [fact for fact in request.facts if fold(fact.text) in told]
        return build_script(
            brief,
            seconds=round(seconds_for_words(_target_word_count(brief.seconds, feedback_history))),
            title=topic.title,
            scenes=[Scene(text=scene.text, visual=scene.visual) for scene in scenes],
            description=_description(topic, brief.language, used),
            tags=topic.tags,
            facts=used,
            not_understood=[
                note
                for at, note in enumerate(feedback_history)
                if not can_follow(note, topic, brief.seconds, feedback_history[:at])
            ],
        )


def can_follow(note: str, topic: Topic, seconds: int, history: Sequence[str]) -> bool:
    """Return whether a script can follow all of this note, and would differ from the one before it."""
    if _requested_subject(note) and _find_nearest_scene(note, topic) is None:
        return False
    return _choose_scenes(topic, seconds, [*history, note]) != _choose_scenes(topic, seconds, history)


def _get_topic(brief: Brief) -> Topic:
    if (topic := find_topic(brief.topic, brief.language)) is None:
        raise GiveUp(str(NeedsLanguageModel(brief.topic, brief.language)), "NEEDS_LANGUAGE_MODEL")
    return topic


def _choose_scenes(topic: Topic, seconds: int, notes: Sequence[str]) -> list[TopicScene]:
    """Return the first and the last scene, those that notes ask for, and as many others as fit, by rank."""
    requested = [scene for note in notes if (scene := _find_nearest_scene(note, topic))]
    chosen = [topic.scenes[0], topic.scenes[-1], *requested]
    room = _target_word_count(seconds, notes) * _LENGTH_TOLERANCE - _count_words(chosen)
    for scene in sorted(topic.scenes, key=lambda scene: scene.rank):
        if scene not in chosen and word_count(scene.text) <= room:
            chosen.append(scene)
            room -= word_count(scene.text)
    return [scene for scene in topic.scenes if scene in chosen]


def _count_words(scenes: Sequence[TopicScene]) -> int:
    return sum(word_count(scene.text) for scene in scenes)


def _requested_subject(note: str) -> set[str]:
    """Return the words for what the note requests besides the length; empty if nothing."""
    words = content_words(_LONGER.sub("", _SHORTER.sub("", note)))
    return _subject_words(" ".join(word for word in words if word.casefold() not in _POLITE_WORDS))


def _find_nearest_scene(note: str, topic: Topic) -> TopicScene | None:
    """Return the scene that shares the most words with the requested subject, and at least half of them.

    Of several, it is the one with the highest rank, because a script is more likely to have the others already.
    """
    subject = _requested_subject(note)
    nearest = max(topic.scenes, key=lambda scene: (len(subject & _scene_words(scene)), scene.rank))
    most = len(subject & _scene_words(nearest))
    return nearest if most and 2 * most >= len(subject) else None


def _scene_words(scene: TopicScene) -> set[str]:
    picture = scene.picture
    labels = [picture.title, picture.note, *(f"{item.label} {item.note}" for item in picture.items)]
    return _subject_words(" ".join([scene.visual, scene.text, *labels, *(fact.text for fact in scene.facts)]))


def _subject_words(text: str) -> set[str]:
    return {fold(word).removesuffix("s") for word in content_words(text)}  # singular and plural are the same subject


def _target_word_count(seconds: int, feedback_history: Sequence[str]) -> int:
    """Return the target in words. Each note about the length applies to the target before it."""
    target = words_for_seconds(seconds)
    for note in feedback_history:
        shorter, longer = bool(_SHORTER.search(note)), bool(_LONGER.search(note))
        if shorter != longer:
            target = max(_LEAST_WORDS, round(target * (SHORTER_FACTOR if shorter else LONGER_FACTOR)))
    return target


def _to_source(topic: Topic, key: str) -> Source:
    source = topic.sources[key]
    return Source(name=source.name, url=source.url, origin="offline_facts")


def _description(topic: Topic, language: Language, facts: Sequence[Fact]) -> str:
    texts = SCRIPT_TEXTS[language]
    sources = {(fact.source.name, fact.source.url) for fact in facts}
    listed = [f"{name} {url}".strip() for name, url in sorted(sources)]
    return "\n".join([topic.summary, "", texts.bundled, *(["", texts.sources, *listed] if listed else [])])
