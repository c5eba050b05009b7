"""Messages of the story pages that are chosen at run time: names of statuses and steps, fields and notices."""

from __future__ import annotations

from pathlib import Path

from retoma.translations import CATALOGUES, N_, NP_, Translator

LOCALE = Path(__file__).parents[1] / "locale"
STATUS_NAMES = {
    "scripting": NP_("status", "Writing the script"),
    "producing": NP_("status", "Producing"),
    "rendering": NP_("status", "Rendering"),
    "ready_for_review": NP_("status", "Ready for review"),
    "published": NP_("status", "Published"),
    "failed": NP_("status", "Failed"),
    "rejected": NP_("status", "Rejected"),
    "cancelled": NP_("status", "Cancelled"),
}
# Labels of the steps on all pages.
STEP_LABELS = {
    "generate_script": N_("Script"),
    "generate_image": N_("Images"),
    "generate_audio": N_("Voices"),
    "translate_scene": N_("Translations"),
    "render_scene": N_("Clips"),
    "render_video": N_("Film"),
    "generate_thumbnails": N_("Thumbnails"),
    "generate_metadata": N_("Title, description and tags"),
    "approval": N_("Approval"),
    "upload_youtube": N_("Upload"),
}
PART_NAMES = {
    "generate_image": N_("Image"),
    "generate_audio": N_("Voice"),
    "translate_scene": N_("Translation"),
}
FIELD_LABELS = {
    "topic": N_("Topic"),
    "scenes": N_("Number of scenes"),
    "languages": N_("Translate to"),
    "channel": N_("Channel"),
}
FIELD_HINTS = {
    "topic": N_("What the story is about, in one sentence."),
    "scenes": N_("From 1 to 100."),
    "languages": N_("Language tags, separated by commas, such as: en, es. Empty: no translation."),
    "channel": N_("Stories of a channel take turns with those of others."),
}
FIELD_ERRORS = {
    "topic": N_("Describe the topic in 3 to 300 characters."),
    "scenes": N_("Enter a whole number from 1 to 100."),
    "languages": N_("Enter each language once, as a tag such as en or pt-BR."),
    "channel": N_("Enter a name of 1 to 100 characters, without a slash."),
}
# The outcome of an action, by the name that the address of the next page carries.
NOTICES = {
    "ordered": N_("The story has been ordered."),
    "published": N_("The story was approved and is being uploaded."),
    "already": N_("Nothing has changed: somebody has already decided, see below."),
    "not_ready": N_("Nothing has changed: the story is not ready for review."),
    "changed": N_("Nothing has changed: the story was rerun since you opened the page. Look at it again."),
    "scene_rerun": N_("The scene is being rerun. The film follows."),
    "busy": N_("Nothing has changed: this scene is still in progress."),
}
# What this machine does in place of a service: as an entry of a list, and as a sentence.
OFFLINE_NAMES = {
    "writer": N_("scripts and translations"),
    "images": N_("images"),
    "speech": N_("voices"),
    "youtube": N_("publication"),
}
OFFLINE_SENTENCES = {
    "writer": N_("Scripts and translations come from the topics that come with Retoma"),
    "images": N_("Images are drawn here"),
    "speech": N_("eSpeak speaks"),
    "youtube": N_("Films are published to a folder"),
}


def create_translator(language: str) -> Translator:
    """Return a translator for use outside a page."""
    return Translator(language, [LOCALE, CATALOGUES])
