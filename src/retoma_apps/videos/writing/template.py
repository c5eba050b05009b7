"""The offline twin of a writer: puts scripts together from stored facts and ready-made passages, and says so in them.

The same brief, facts and wishes always give the same script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retoma_apps.videos.models import Brief, Fact, Language, Scene, Script
from retoma_apps.videos.words import cleaned, folded, seconds_for, shortened, word_count, words_in
from retoma_apps.videos.writing.almanac import facts_about, visual_of
from retoma_apps.videos.writing.drafts import finished, unknown
from retoma_apps.videos.writing.passages import BOOKS, TOPIC, Book
from retoma_apps.videos.writing.phrases import content_words, noun_phrases
from retoma_apps.videos.writing.port import Paid, Researched, Written

SHORTER, LONGER = 0.7, 1.4
_ROOM = 1.05  # a little over the wanted length is better than a hole before it
_LONGEST_TOPIC = 160
_LEAST_WORDS = 40
_UNSPEAKABLE = re.compile(r"[{}\[\]<>*_#|\\\"“”«»()]")
_SHORTER = re.compile(r"\b(?:mais (?:curt[oa]|breve)|menor|encurt\w+|short(?:er|en)|briefer)\b", re.IGNORECASE)
_LONGER = re.compile(r"\b(?:mais (?:long[oa]|compridos?)|maior|along\w+|longer|lengthen)\b", re.IGNORECASE)
_POLITE = frozenset(
    re.findall(
        r"\w+",
        "deixe deixar faça fazer favor pouco roteiro texto vídeo quero ficar ficou bem fale falar diga conte sobre "
        "make please little script text video should want bit much tell talk speak mention say about",
    )
)
_ASKING = re.compile(
    r"^(?:como|o|a|os|as|um|uma|por|quando|onde|quem|qual|how|what|why|when|where|who|the|an?)\b", re.IGNORECASE
)


class TemplateWriter:
    """Costs nothing. What it says of a topic it does not know could be said of any."""

    name = "offline/template"
    follows_notes = False

    async def research(
        self, brief: Brief, known: Sequence[Fact], wishes: Sequence[str], *, paid: Paid | None = None
    ) -> Researched:
        asked = " ".join([brief.topic, *wishes])
        return Researched(facts=unknown(facts_about(asked, brief.language), known))

    async def script(
        self,
        brief: Brief,
        facts: Sequence[Fact],
        *,
        wishes: Sequence[str],
        former: Script | None,
        paid: Paid | None = None,
    ) -> Written:
        return Written(script=written(brief, facts, wishes))


def written(brief: Brief, facts: Sequence[Fact], wishes: Sequence[str]) -> Script:
    book, topic, wanted = BOOKS[brief.language], _topic(brief.topic), _wanted(brief, wishes)
    met = _met(facts, wishes)
    answers = [_fact_scene(brief.language, fact, topic) for fact in met.values()]
    opening = _about(topic, book.opening)
    room = wanted * _ROOM - sum(_size(scene) for scene in [opening, *answers, book.closing])
    told = _told(book, brief.language, topic, [fact for fact in facts if not _is_said(fact, answers)], room)
    used = [fact for fact in facts if _is_said(fact, [*told, *answers])]
    return finished(
        brief,
        seconds=round(seconds_for(wanted)),
        title=_titled(book.title, topic),
        scenes=[opening, *told, *answers, book.closing if used else book.closing_without_sources],
        description=_description(book, topic, used),
        tags=[" ".join(content_words(topic)), *content_words(topic), *book.tags],
        facts=used,
        topic_unknown=not facts,
        not_understood=[wish for wish in dict.fromkeys(wishes) if _asked(wish) and wish not in met],
    )


def _told(book: Book, language: Language, topic: str, facts: Sequence[Fact], room: float) -> list[Scene]:
    """As many facts as there is room for, then as many passages; what does not fit is left out whole."""
    scenes: list[Scene] = []
    for fact in facts:
        lead = book.leads[len(scenes)] if len(scenes) < len(book.leads) else ""
        scene = _fact_scene(language, fact, topic, lead)
        if _size(scene) <= room:
            scenes, room = [*scenes, scene], room - _size(scene)
    for scene in (_about(topic, each) for each in book.passages):
        if _size(scene) <= room:
            scenes, room = [*scenes, scene], room - _size(scene)
    return scenes


def _fact_scene(language: Language, fact: Fact, topic: str, lead: str = "") -> Scene:
    text = _spoken(fact.text)
    return Scene(text=f"{lead} {text}".strip(), visual=visual_of(fact) or _visual(text, language, topic))


def _met(facts: Sequence[Fact], wishes: Sequence[str]) -> dict[str, Fact]:
    """By wish, the fact that is told for it. One that asks for no subject, or for one without a fact, has none."""
    met: dict[str, Fact] = {}
    for wish in dict.fromkeys(wishes):
        if fact := _nearest(_asked(wish), [fact for fact in facts if fact not in met.values()]):
            met[wish] = fact
    return met


def is_followed(wish: str, facts: Sequence[Fact]) -> bool:
    """Whether a script can meet all of this wish, with these facts at hand."""
    asked = _asked(wish)
    return _nearest(asked, facts) is not None if asked else bool(_LONGER.search(wish) or _SHORTER.search(wish))


def _asked(wish: str) -> str:
    """What is asked for besides the length; empty if nothing is."""
    asked = content_words(_LONGER.sub("", _SHORTER.sub("", wish)))
    return " ".join(word for word in asked if word.casefold() not in _POLITE)


def _is_said(fact: Fact, scenes: Sequence[Scene]) -> bool:
    return any(_spoken(fact.text) in scene.text for scene in scenes)


def _nearest(asked: str, facts: Sequence[Fact]) -> Fact | None:
    """The fact that shares most words with what is asked for, and at least half of them; None if there is none."""
    meanings = _meanings(asked)
    shared = [(len(meanings & _meanings(fact.text)), -place) for place, fact in enumerate(facts)]
    most, place = max(shared, default=(0, 0))
    return facts[-place] if most and 2 * most >= len(meanings) else None


def _meanings(text: str) -> set[str]:
    return {folded(word).removesuffix("s") for word in content_words(text)}  # one or many are the same subject


def _wanted(brief: Brief, wishes: Sequence[str]) -> int:
    """In words. Each wish for another length is about what the one before it gave."""
    wanted = words_in(brief.seconds)
    for wish in wishes:
        shorter, longer = bool(_SHORTER.search(wish)), bool(_LONGER.search(wish))
        if shorter != longer:
            wanted = max(_LEAST_WORDS, round(wanted * (SHORTER if shorter else LONGER)))
    return wanted


def _description(book: Book, topic: str, facts: Sequence[Fact]) -> str:
    sources = {(fact.source.name, fact.source.url) for fact in facts}
    listed = [f"{name} {url}".strip() for name, url in sorted(sources)][:20]
    return "\n".join([_titled(book.summary, topic), "", book.offline, *(["", book.sources, *listed] if listed else [])])


def _about(topic: str, scene: Scene) -> Scene:
    return Scene(text=scene.text.replace(TOPIC, topic), visual=scene.visual)


def _titled(text: str, topic: str) -> str:
    room = 100 - len(text) + len(TOPIC)
    filled = text.replace(TOPIC, shortened(topic, room))
    return filled[0].upper() + filled[1:]


def _topic(text: str) -> str:
    """As it is said within a sentence: `Como investir?` becomes `como investir`."""
    said = shortened(_speakable(text), _LONGEST_TOPIC).rstrip(" .!?…:;,") or "…"
    return said[0].lower() + said[1:] if _ASKING.match(said) else said


def _spoken(text: str) -> str:
    said = _speakable(text)
    return said if said.endswith((".", "!", "?", "…")) else f"{said}."


def _speakable(text: str) -> str:
    """Without the marks that a voice would stumble over and that others could take for markup."""
    return cleaned(_UNSPEAKABLE.sub(" ", text))


def _visual(text: str, language: Language, otherwise: str) -> str:
    phrases = noun_phrases(text, language)
    return phrases[0] if phrases else " ".join(content_words(otherwise)[:3]) or otherwise[:60]


def _size(scene: Scene) -> int:
    return word_count(scene.text)
