"""The offline writer: it tells the topics that come with Retoma, and translates those that exist in both languages."""

from __future__ import annotations

from collections.abc import Sequence

from retoma import GiveUp
from retoma.errors import InvalidInput
from retoma.translations import N_
from retoma_apps.media.script_texts import SCRIPT_TEXTS
from retoma_apps.media.services import UsageCallback
from retoma_apps.media.spoken_text import split_sentences, word_count
from retoma_apps.providers import llm
from retoma_apps.providers.provider import format_variables
from retoma_apps.providers.topics import Topic, TopicScene, find_scene, find_topic, find_translation, list_topics
from retoma_apps.stories.models import Brief, Metadata, Scene, Texts

_NEEDS_MODEL = N_(
    "the topic “%(topic)s” needs a language model: set %(variables)s, or choose one of the topics that come with "
    "Retoma: %(titles)s"
)
_NEEDS_TRANSLATOR = N_(
    "the topic “%(topic)s” can be translated to %(language)s only by a language model: set %(variables)s, or leave "
    "this language out"
)
_EDITED = "the text of scene {scene} was changed, so only a language model can translate it: set {variables} and resume"


class NeedsLanguageModel(InvalidInput):
    """The topic or a translation of it is not bundled, and no language model is configured."""

    @classmethod
    def for_topic(cls, topic: str) -> NeedsLanguageModel:
        titles = "; ".join(each.title for each in list_topics())
        return cls(_NEEDS_MODEL, topic=topic[:120], variables=format_variables(llm.PROVIDERS), titles=titles)

    @classmethod
    def for_translation(cls, topic: str, language: str) -> NeedsLanguageModel:
        variables = format_variables(llm.PROVIDERS)
        return cls(_NEEDS_TRANSLATOR, topic=topic[:120], language=language, variables=variables)


class BundledStoryWriter:
    """Costs nothing. It knows only the bundled topics."""

    provider = "offline"
    name = "offline/bundled"
    is_offline = True

    @property
    def topics(self) -> Sequence[Topic] | None:
        return list_topics()

    async def script(self, brief: Brief, *, on_usage: UsageCallback | None = None) -> list[Scene]:
        """Return as many scenes as the brief asks for. A topic has at most one for each of its sentences."""
        parts = _split_scenes(_choose_scenes(_get_topic(brief), brief.scenes), brief.scenes)
        return [
            Scene(id=str(number), text=" ".join(sentences), visual=scene.visual)
            for number, (scene, sentences) in enumerate(parts, 1)
        ]

    async def translate(
        self, brief: Brief, scene: Scene, language: str, *, on_usage: UsageCallback | None = None
    ) -> str:
        """Return the sentences of the same scene in the other language that correspond to those of this part of it."""
        topic = _get_topic(brief)
        other, found = find_translation(topic, language), find_scene(scene.visual)
        if other is None:
            raise GiveUp(str(NeedsLanguageModel.for_translation(brief.topic, language)), "NEEDS_LANGUAGE_MODEL")
        if found is None or found[0] != topic or scene.text not in (whole := found[1].text):
            problem = _EDITED.format(scene=scene.id, variables=format_variables(llm.PROVIDERS))
            raise GiveUp(problem, "NEEDS_LANGUAGE_MODEL")
        start = len(split_sentences(whole[: whole.index(scene.text)]))
        count, total = len(split_sentences(scene.text)), len(split_sentences(whole))
        sentences = split_sentences(other.scenes[topic.scenes.index(found[1])].text)
        first = min(start * len(sentences) // total, len(sentences) - 1)
        return " ".join(sentences[first : max(first + 1, (start + count) * len(sentences) // total)])

    async def metadata(
        self, brief: Brief, scenes: Sequence[Scene], *, on_usage: UsageCallback | None = None
    ) -> Metadata:
        topic = _get_topic(brief)
        others = {language: find_translation(topic, language) for language in brief.languages}
        return Metadata(
            title=topic.title,
            description=_describe(topic),
            tags=list(topic.tags),
            localizations={
                language: Texts(title=other.title, description=_describe(other))
                for language, other in others.items()
                if other
            },
        )


def _get_topic(brief: Brief) -> Topic:
    if (topic := find_topic(brief.topic, brief.language)) is None:
        raise GiveUp(str(NeedsLanguageModel.for_topic(brief.topic)), "NEEDS_LANGUAGE_MODEL")
    return topic


def _choose_scenes(topic: Topic, count: int) -> list[TopicScene]:
    """Return at most so many scenes: the first, the last, and others by rank."""
    first, *middle, last = topic.scenes
    chosen = [first, last, *sorted(middle, key=lambda scene: scene.rank)][:count]
    return [scene for scene in topic.scenes if scene in chosen]


def _split_scenes(scenes: Sequence[TopicScene], count: int) -> list[tuple[TopicScene, list[str]]]:
    """Return the sentences of each part of each scene. The longest parts are split until there are `count`.

    A picture of one number is not split: its second part would show nothing new.
    """
    parts = [(scene, split_sentences(scene.text)) for scene in scenes]
    while len(parts) < count:
        lengths = [
            word_count(" ".join(sentences)) if len(sentences) > 1 and scene.picture.kind != "number" else 0
            for scene, sentences in parts
        ]
        longest = lengths.index(max(lengths))
        if not lengths[longest]:
            break
        scene, sentences = parts[longest]
        middle = (len(sentences) + 1) // 2
        parts[longest : longest + 1] = [(scene, sentences[:middle]), (scene, sentences[middle:])]
    return parts


def _describe(topic: Topic) -> str:
    texts = SCRIPT_TEXTS["en" if topic.language == "en" else "pt-BR"]
    sources = [f"{source.name} {source.url}".strip() for source in topic.sources.values()]
    return "\n".join([topic.summary, "", texts.bundled, "", texts.sources, *sources])
