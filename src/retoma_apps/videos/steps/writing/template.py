"""The offline writer: it builds scripts from stored facts and ready-made passages, and the scripts say so.

The same brief, facts and feedback always produce the same script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retoma_apps.videos.models import Brief, Fact, Language, Scene, Script
from retoma_apps.videos.steps.spoken_text import (
    clean_text,
    fold,
    seconds_for_words,
    truncate,
    word_count,
    words_for_seconds,
)
from retoma_apps.videos.steps.writing.drafts import build_script, select_new_facts
from retoma_apps.videos.steps.writing.offline_facts import find_facts, find_visual
from retoma_apps.videos.steps.writing.offline_texts import SCRIPT_TEXTS, TOPIC, ScriptTexts
from retoma_apps.videos.steps.writing.phrases import content_words, noun_phrases
from retoma_apps.videos.steps.writing.port import UsageCallback

SHORTER_FACTOR, LONGER_FACTOR = 0.7, 1.4
_LENGTH_TOLERANCE = 1.05  # a little over the target length is better than a gap
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
    """Costs nothing. Its text about an unknown topic would fit any topic."""

    provider = "offline"
    name = "offline/template"
    follows_notes = False
    is_offline = True

    async def research(
        self,
        brief: Brief,
        known: Sequence[Fact],
        feedback_history: Sequence[str],
        *,
        on_usage: UsageCallback | None = None,
    ) -> list[Fact]:
        text = " ".join([brief.topic, *feedback_history])
        return select_new_facts(find_facts(text, brief.language), known)

    async def script(
        self,
        brief: Brief,
        facts: Sequence[Fact],
        *,
        feedback_history: Sequence[str],
        previous: Script | None,
        on_usage: UsageCallback | None = None,
    ) -> Script:
        texts, topic, word_target = (
            SCRIPT_TEXTS[brief.language],
            _topic_in_sentence(brief.topic),
            _target_word_count(brief, feedback_history),
        )
        followed = _match_notes(facts, feedback_history)
        answers = [_fact_scene(brief.language, fact, topic) for fact in followed.values()]
        opening = _fill_topic(topic, texts.opening)
        room = word_target * _LENGTH_TOLERANCE - sum(
            word_count(scene.text) for scene in [opening, *answers, texts.closing]
        )
        scenes = _build_scenes(
            texts, brief.language, topic, [fact for fact in facts if not _is_fact_used(fact, answers)], room
        )
        used = [fact for fact in facts if _is_fact_used(fact, [*scenes, *answers])]
        return build_script(
            brief,
            seconds=round(seconds_for_words(word_target)),
            title=_fill_title(texts.title, topic),
            scenes=[opening, *scenes, *answers, texts.closing if used else texts.closing_without_sources],
            description=_description(texts, topic, used),
            tags=[" ".join(content_words(topic)), *content_words(topic), *texts.tags],
            facts=used,
            topic_unknown=not facts,
            not_understood=[
                note for note in dict.fromkeys(feedback_history) if _requested_subject(note) and note not in followed
            ],
        )


def _build_scenes(
    texts: ScriptTexts, language: Language, topic: str, facts: Sequence[Fact], max_words: float
) -> list[Scene]:
    """Return as many facts as fit, then as many passages; what does not fit is left out completely."""
    scenes: list[Scene] = []
    for fact in facts:
        lead = texts.leads[len(scenes)] if len(scenes) < len(texts.leads) else ""
        scene = _fact_scene(language, fact, topic, lead)
        if word_count(scene.text) <= max_words:
            scenes, max_words = [*scenes, scene], max_words - word_count(scene.text)
    for scene in (_fill_topic(topic, each) for each in texts.passages):
        if word_count(scene.text) <= max_words:
            scenes, max_words = [*scenes, scene], max_words - word_count(scene.text)
    return scenes


def _fact_scene(language: Language, fact: Fact, topic: str, lead: str = "") -> Scene:
    text = _as_sentence(fact.text)
    return Scene(text=f"{lead} {text}".strip(), visual=find_visual(fact) or _choose_visual(text, language, topic))


def _match_notes(facts: Sequence[Fact], feedback_history: Sequence[str]) -> dict[str, Fact]:
    """Return the fact used for each note. A note without a subject, or without a matching fact, has none."""
    followed: dict[str, Fact] = {}
    for note in dict.fromkeys(feedback_history):
        if fact := _find_nearest_fact(
            _requested_subject(note), [fact for fact in facts if fact not in followed.values()]
        ):
            followed[note] = fact
    return followed


def can_follow(note: str, facts: Sequence[Fact]) -> bool:
    """Return whether a script can follow all of this note with these facts."""
    subject = _requested_subject(note)
    return (
        _find_nearest_fact(subject, facts) is not None
        if subject
        else bool(_LONGER.search(note) or _SHORTER.search(note))
    )


def _requested_subject(note: str) -> str:
    """Return what the note requests besides the length; empty if nothing."""
    words = content_words(_LONGER.sub("", _SHORTER.sub("", note)))
    return " ".join(word for word in words if word.casefold() not in _POLITE_WORDS)


def _is_fact_used(fact: Fact, scenes: Sequence[Scene]) -> bool:
    return any(_as_sentence(fact.text) in scene.text for scene in scenes)


def _find_nearest_fact(subject: str, facts: Sequence[Fact]) -> Fact | None:
    """Return the fact that shares the most words with the subject, and at least half of them; None if there is none."""
    meanings = _subject_words(subject)
    shared = [(len(meanings & _subject_words(fact.text)), -index) for index, fact in enumerate(facts)]
    most, index = max(shared, default=(0, 0))
    return facts[-index] if most and 2 * most >= len(meanings) else None


def _subject_words(text: str) -> set[str]:
    return {fold(word).removesuffix("s") for word in content_words(text)}  # singular and plural are the same subject


def _target_word_count(brief: Brief, feedback_history: Sequence[str]) -> int:
    """Return the target in words. Each note about the length applies to the target before it."""
    target = words_for_seconds(brief.seconds)
    for note in feedback_history:
        shorter, longer = bool(_SHORTER.search(note)), bool(_LONGER.search(note))
        if shorter != longer:
            target = max(_LEAST_WORDS, round(target * (SHORTER_FACTOR if shorter else LONGER_FACTOR)))
    return target


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
    """Return the topic as used within a sentence: `Como investir?` becomes `como investir`."""
    topic = truncate(_remove_markup(text), _LONGEST_TOPIC).rstrip(" .!?…:;,") or "…"
    return topic[0].lower() + topic[1:] if _QUESTION_START.match(topic) else topic


def _as_sentence(text: str) -> str:
    sentence = _remove_markup(text)
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


def _remove_markup(text: str) -> str:
    """Remove characters that a voice would stumble over or that could be markup."""
    return clean_text(_UNSPEAKABLE.sub(" ", text))


def _choose_visual(text: str, language: Language, fallback: str) -> str:
    phrases = noun_phrases(text, language)
    return phrases[0] if phrases else " ".join(content_words(fallback)[:3]) or fallback[:60]
