"""Understand the notes that the offline writer can follow: a length, and one scene of the topic to include.

A note is understood only if each of its words is. A note that mentions a scene may as well say to remove or correct it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from retoma_apps.media.content_words import is_content
from retoma_apps.media.spoken_text import fold
from retoma_apps.providers.topics import Topic, TopicScene

SHORTER_FACTOR, LONGER_FACTOR = 0.7, 1.4
_DEGREE = r"\b(?:(?:um pouco|bem|muito|a (?:little|bit)|much) )?"
_SHORTER = re.compile(rf"{_DEGREE}(?:mais (?:curt[oa]|breve)|menor|encurt\w+|short(?:er|en)|briefer)\b")
_LONGER = re.compile(rf"{_DEGREE}(?:mais (?:long[oa]|compridos?)|maior|along\w+|longer|lengthen)\b")
_TIMECODE = re.compile(r"^[\d:.]+(?:-[\d:.]+)?(?= )", re.MULTILINE)
_CLAUSE_END = re.compile(r"[.,;:!?\n]+|\b(?:e|and)\b")
_REFUSAL = re.compile(
    r"\b(?:nao|nem|nunca|jamais|nada|nenhum\w*|sem|menos|demais|muit[oa]s?|exceto|fora|so|somente|apenas|antes|depois|"
    r"tir[aeo]\w*|remov\w+|retir\w+|exclu\w+|elimin\w+|cort[aeo]\w*|apag\w+|omit\w+|evit\w+|ignor\w+|troque|trocar|"
    r"substitu\w+|corrij\w+|corrig\w+|err[aeo]\w*|fals[oa]s?|incorret\w+|"
    r"no|not|nor|never|none|nothing|without|except|but|only|just|less|fewer|too|much|many|instead|before|after|"
    r"dont|doesnt|isnt|arent|t|remov\w+|drop\w*|delet\w+|skip\w*|cut\w*|omit\w*|avoid\w*|leave|stop|replace\w*|"
    r"wrong\w*|false|incorrect\w*|error\w*|mistake\w*|fix|correct)\b"
)
_POLITE_WORDS = frozenset(
    re.findall(
        r"\w+",
        "deixe deixar faca fazer favor pouco roteiro texto video quero ficar fique bem fale falar diga conte inclua "
        "incluir acrescente mostre explique parte cena vale make please little script text video should want bit tell "
        "talk speak mention say include add show explain part scene",
    )
)


@dataclass(frozen=True)
class Request:
    """What a note asks for. `factor` changes the length; 1 if the note does not mention it."""

    factor: float = 1
    scene: TopicScene | None = None


def understand_note(note: str, topic: Topic) -> Request | None:
    """Return what the note asks for, or None if it is empty or if any of it is not understood."""
    clauses = [fold(clause) for clause in _CLAUSE_END.split(_TIMECODE.sub("", note.casefold()))]
    lengths = [clause for clause in clauses if _SHORTER.search(clause) or _LONGER.search(clause)]
    left = " ".join(_LONGER.sub("", _SHORTER.sub("", clause)) for clause in clauses)
    subject = _find_subject(left)
    has_mixed_clause = any(_find_subject(_LONGER.sub("", _SHORTER.sub("", clause))) for clause in lengths)
    if _REFUSAL.search(left) or has_mixed_clause or not (lengths or subject):
        return None
    scene = _find_scene(subject, topic) if subject else None
    return None if subject and scene is None else Request(_compute_factor(" ".join(lengths)), scene)


def _compute_factor(text: str) -> float:
    shorter, longer = bool(_SHORTER.search(text)), bool(_LONGER.search(text))
    return 1 if shorter == longer else SHORTER_FACTOR if shorter else LONGER_FACTOR


def _find_subject(text: str) -> set[str]:
    """Return the words of folded text for what it requests, numbers included; empty if nothing."""
    return {
        word.removesuffix("s")
        for word in re.findall(r"\w+", text)
        if word not in _POLITE_WORDS and (is_content(word) or word.isdigit())
    }


def _find_scene(subject: set[str], topic: Topic) -> TopicScene | None:
    """Return the scene that has all words of the subject, or None.

    Of several, it is the one with the highest rank, because a script is more likely to have the others already.
    """
    found = (scene for scene in topic.scenes if subject <= _list_words(scene))
    return max(found, key=lambda scene: scene.rank, default=None)


def _list_words(scene: TopicScene) -> set[str]:
    picture = scene.picture
    labels = [picture.title, picture.note, picture.text, *(f"{item.label} {item.note}" for item in picture.items)]
    text = " ".join([scene.visual, scene.text, *labels, *(fact.text for fact in scene.facts)])
    return {word.removesuffix("s") for word in re.findall(r"\w+", fold(text))}  # singular and plural are the same
