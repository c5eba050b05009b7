"""The offline twin of a writer: puts scripts together from stored facts and ready-made passages, and says so in them.

The same brief, facts and wishes always give the same script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retoma_apps.videos.models import Brief, Fact, Language, Scene, Script
from retoma_apps.videos.spoken_text import clean_text, fold, seconds_for_words, truncate, word_count, words_for_seconds
from retoma_apps.videos.writing.drafts import build_script, select_new_facts
from retoma_apps.videos.writing.offline_facts import find_facts, find_visual
from retoma_apps.videos.writing.offline_texts import SCRIPT_TEXTS, TOPIC, ScriptTexts
from retoma_apps.videos.writing.phrases import content_words, noun_phrases
from retoma_apps.videos.writing.port import ResearchResult, ScriptResult, UsageCallback

SHORTER_FACTOR, LONGER_FACTOR = 0.7, 1.4
_LENGTH_TOLERANCE = 1.05  # a little over the wanted length is better than a hole before it
_LONGEST_TOPIC = 160
_LEAST_WORDS = 40
_UNSPEAKABLE = re.compile(r"[{}\[\]<>*_#|\\\"“”«»()]")
_SHORTER = re.compile(r"\b(?:mais (?:curt[oa]|breve)|menor|encurt\w+|short(?:er|en)|briefer)\b", re.IGNORECASE)
_LONGER = re.compile(r"\b(?:mais (?:long[oa]|compridos?)|maior|along\w+|longer|lengthen)\b", re.IGNORECASE)
_POLITE_WORDS = frozenset(
    re.findall(
        r"\w+",
        "deixe deixar faça fazer favor pouco roteiro texto vídeo quero ficar ficou bem fale falar diga conte sobre "
        "make please little script text video should want bit much tell talk speak mention say about",
    )
)
_QUESTION_START = re.compile(
    r"^(?:como|o|a|os|as|um|uma|por|quando|onde|quem|qual|how|what|why|when|where|who|the|an?)\b", re.IGNORECASE
)


class TemplateWriter:
    """Costs nothing. What it says of a topic it does not know could be said of any."""

    name = "offline/template"
    follows_notes = False

    async def research(
        self,
        brief: Brief,
        known: Sequence[Fact],
        feedback_history: Sequence[str],
        *,
        on_usage: UsageCallback | None = None,
    ) -> ResearchResult:
        asked = " ".join([brief.topic, *feedback_history])
        return ResearchResult(facts=select_new_facts(find_facts(asked, brief.language), known))

    async def script(
        self,
        brief: Brief,
        facts: Sequence[Fact],
        *,
        feedback_history: Sequence[str],
        previous: Script | None,
        on_usage: UsageCallback | None = None,
    ) -> ScriptResult:
        return ScriptResult(script=write_script(brief, facts, feedback_history))


def write_script(brief: Brief, facts: Sequence[Fact], feedback_history: Sequence[str]) -> Script:
    book, topic, wanted = (
        SCRIPT_TEXTS[brief.language],
        _topic_in_sentence(brief.topic),
        _target_word_count(brief, feedback_history),
    )
    met = _match_notes(facts, feedback_history)
    answers = [_fact_scene(brief.language, fact, topic) for fact in met.values()]
    opening = _fill_topic(topic, book.opening)
    room = wanted * _LENGTH_TOLERANCE - sum(_word_count_of(scene) for scene in [opening, *answers, book.closing])
    told = _build_scenes(
        book, brief.language, topic, [fact for fact in facts if not _is_fact_used(fact, answers)], room
    )
    used = [fact for fact in facts if _is_fact_used(fact, [*told, *answers])]
    return build_script(
        brief,
        seconds=round(seconds_for_words(wanted)),
        title=_fill_title(book.title, topic),
        scenes=[opening, *told, *answers, book.closing if used else book.closing_without_sources],
        description=_description(book, topic, used),
        tags=[" ".join(content_words(topic)), *content_words(topic), *book.tags],
        facts=used,
        topic_unknown=not facts,
        not_understood=[
            wish for wish in dict.fromkeys(feedback_history) if _requested_subject(wish) and wish not in met
        ],
    )


def _build_scenes(
    texts: ScriptTexts, language: Language, topic: str, facts: Sequence[Fact], max_words: float
) -> list[Scene]:
    """As many facts as there is room for, then as many passages; what does not fit is left out whole."""
    scenes: list[Scene] = []
    for fact in facts:
        lead = texts.leads[len(scenes)] if len(scenes) < len(texts.leads) else ""
        scene = _fact_scene(language, fact, topic, lead)
        if _word_count_of(scene) <= max_words:
            scenes, max_words = [*scenes, scene], max_words - _word_count_of(scene)
    for scene in (_fill_topic(topic, each) for each in texts.passages):
        if _word_count_of(scene) <= max_words:
            scenes, max_words = [*scenes, scene], max_words - _word_count_of(scene)
    return scenes


def _fact_scene(language: Language, fact: Fact, topic: str, lead: str = "") -> Scene:
    text = _as_sentence(fact.text)
    return Scene(text=f"{lead} {text}".strip(), visual=find_visual(fact) or _choose_visual(text, language, topic))


def _match_notes(facts: Sequence[Fact], feedback_history: Sequence[str]) -> dict[str, Fact]:
    """By wish, the fact that is told for it. One that asks for no subject, or for one without a fact, has none."""
    met: dict[str, Fact] = {}
    for wish in dict.fromkeys(feedback_history):
        if fact := _find_nearest_fact(_requested_subject(wish), [fact for fact in facts if fact not in met.values()]):
            met[wish] = fact
    return met


def can_follow(note: str, facts: Sequence[Fact]) -> bool:
    """Whether a script can meet all of this wish, with these facts at hand."""
    asked = _requested_subject(note)
    return (
        _find_nearest_fact(asked, facts) is not None if asked else bool(_LONGER.search(note) or _SHORTER.search(note))
    )


def _requested_subject(note: str) -> str:
    """What is asked for besides the length; empty if nothing is."""
    asked = content_words(_LONGER.sub("", _SHORTER.sub("", note)))
    return " ".join(word for word in asked if word.casefold() not in _POLITE_WORDS)


def _is_fact_used(fact: Fact, scenes: Sequence[Scene]) -> bool:
    return any(_as_sentence(fact.text) in scene.text for scene in scenes)


def _find_nearest_fact(subject: str, facts: Sequence[Fact]) -> Fact | None:
    """The fact that shares most words with what is asked for, and at least half of them; None if there is none."""
    meanings = _subject_words(subject)
    shared = [(len(meanings & _subject_words(fact.text)), -place) for place, fact in enumerate(facts)]
    most, place = max(shared, default=(0, 0))
    return facts[-place] if most and 2 * most >= len(meanings) else None


def _subject_words(text: str) -> set[str]:
    return {fold(word).removesuffix("s") for word in content_words(text)}  # one or many are the same subject


def _target_word_count(brief: Brief, feedback_history: Sequence[str]) -> int:
    """In words. Each wish for another length is about what the one before it gave."""
    wanted = words_for_seconds(brief.seconds)
    for wish in feedback_history:
        shorter, longer = bool(_SHORTER.search(wish)), bool(_LONGER.search(wish))
        if shorter != longer:
            wanted = max(_LEAST_WORDS, round(wanted * (SHORTER_FACTOR if shorter else LONGER_FACTOR)))
    return wanted


def _description(texts: ScriptTexts, topic: str, facts: Sequence[Fact]) -> str:
    sources = {(fact.source.name, fact.source.url) for fact in facts}
    listed = [f"{name} {url}".strip() for name, url in sorted(sources)][:20]
    return "\n".join(
        [_fill_title(texts.summary, topic), "", texts.offline, *(["", texts.sources, *listed] if listed else [])]
    )


def _fill_topic(topic: str, scene: Scene) -> Scene:
    return Scene(text=scene.text.replace(TOPIC, topic), visual=scene.visual)


def _fill_title(text: str, topic: str) -> str:
    room = 100 - len(text) + len(TOPIC)
    filled = text.replace(TOPIC, truncate(topic, room))
    return filled[0].upper() + filled[1:]


def _topic_in_sentence(text: str) -> str:
    """As it is said within a sentence: `Como investir?` becomes `como investir`."""
    said = truncate(_remove_markup(text), _LONGEST_TOPIC).rstrip(" .!?…:;,") or "…"
    return said[0].lower() + said[1:] if _QUESTION_START.match(said) else said


def _as_sentence(text: str) -> str:
    said = _remove_markup(text)
    return said if said.endswith((".", "!", "?", "…")) else f"{said}."


def _remove_markup(text: str) -> str:
    """Without the marks that a voice would stumble over and that others could take for markup."""
    return clean_text(_UNSPEAKABLE.sub(" ", text))


def _choose_visual(text: str, language: Language, fallback: str) -> str:
    phrases = noun_phrases(text, language)
    return phrases[0] if phrases else " ".join(content_words(fallback)[:3]) or fallback[:60]


def _word_count_of(scene: Scene) -> int:
    return word_count(scene.text)
