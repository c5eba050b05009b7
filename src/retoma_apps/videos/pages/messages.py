"""Messages of the video pages that are chosen at run time: names of stages and steps, fields, notices and metrics."""

from __future__ import annotations

from pathlib import Path

from retoma.translations import CATALOGUES, N_, NP_, Translator

LOCALE = Path(__file__).parents[1] / "locale"
STAGE_NAMES = {
    "draft": NP_("stage", "Draft"),
    "researching": NP_("stage", "Researching"),
    "scripted": NP_("stage", "Scripted"),
    "producing": NP_("stage", "Producing"),
    "assembling": NP_("stage", "Assembling"),
    "ready": NP_("stage", "Ready"),
    "uploaded": NP_("stage", "Uploaded"),
    "published": NP_("stage", "Published"),
    "failed": NP_("stage", "Failed"),
    "rejected": NP_("stage", "Rejected"),
    "cancelled": NP_("stage", "Cancelled"),
}
# Labels of the steps on all pages.
STEP_LABELS = {
    "knowledge_query": N_("Known facts"),
    "research": N_("Research"),
    "script_generation": N_("Script"),
    "script_review": N_("Script review"),
    "audio_generation": N_("Narration"),
    "audio_review": N_("Narration review"),
    "broll_search": N_("Footage"),
    "broll_review": N_("Footage review"),
    "video_assembly": N_("Assembly"),
    "subtitle_gen": N_("Subtitles"),
    "thumbnail_gen": N_("Thumbnails"),
    "final_review": N_("Final review"),
    "upload": N_("Upload"),
    "knowledge_store": N_("Storing new facts"),
    "analytics_init": N_("Initial metrics"),
    "publication": N_("Publication"),
    "published_video": N_("Videos of the batch"),
}
FIELD_LABELS = {
    "topic": N_("Topic"),
    "channel": N_("Channel"),
    "language": N_("Language"),
    "start_at": N_("Start at"),
    "scheduled_for": N_("Publish at"),
    "voice": N_("Voice"),
    "style": N_("Style"),
    "seconds": N_("Length in seconds"),
    "budget": N_("Budget per video, in US dollars"),
    "account": N_("YouTube account"),
}
FIELD_HINTS = {
    "topic": N_("What the video is about, in one sentence."),
    "channel": N_("A new name creates a new channel."),
    "language": N_("Language of the script and the narration."),
    "start_at": N_("Empty: now."),
    "scheduled_for": N_("Empty: as soon as it is approved."),
    "voice": N_("A voice of the list, or another one: %(voice_forms)s. Empty: the default voice of the language."),
    "style": N_("How it should sound, in your own words."),
    "seconds": N_("From 20 to 3,600."),
    "budget": N_("From 0 to 10,000. A person is asked before a video passes it; 0 means no limit."),
    "account": N_("Empty if there is only one. Its key is YOUTUBE_REFRESH_TOKEN_ and the account's name."),
}
FIELD_ERRORS = {
    "topic": N_("Describe the topic in 3 to 300 characters."),
    "channel": N_("Enter a name of 1 to 100 characters, without a slash."),
    "language": N_("Choose one of the languages."),
    "start_at": N_("Enter a date and time, such as 2026-02-04T12:00."),
    "scheduled_for": N_("Enter a date and time, such as 2026-02-04T12:00."),
    "voice": N_("This voice is unknown, has no key, or speaks another language."),
    "style": N_("At most 500 characters."),
    "seconds": N_("Enter a whole number from 20 to 3,600."),
    "budget": N_("Enter a number from 0 to 10,000."),
    "account": N_("At most 100 characters, all Latin."),
    "videos": N_("Enter at least 1 and at most 200 topics."),
}
TIME_ERRORS = {
    "too late": N_("This time has passed."),
    "starts after": N_("The work must start before the video is published."),
}
LANGUAGE_NAMES = {
    "pt-BR": N_("Brazilian Portuguese"),
    "en": N_("English"),
}
# The outcome of an action, by the name that the address of the next page carries.
NOTICES = {
    "ordered": N_("The video has been ordered."),
    "batch_ordered": N_("The videos have been ordered."),
    "batch_cancelled": N_("The batch is being cancelled, with all its videos."),
    "saved": N_("Saved. It applies to videos that are ordered from now on."),
}
# What this machine does in place of a service: as an entry of a list, and as a sentence.
OFFLINE_NAMES = {
    "writer": N_("scripts"),
    "speech": N_("narration"),
    "footage": N_("footage"),
    "images": N_("thumbnail backgrounds"),
    "youtube": N_("publication"),
}
OFFLINE_SENTENCES = {
    "writer": N_("Scripts come from the topics that come with Retoma"),
    "speech": N_("eSpeak narrates"),
    "footage": N_("Footage is drawn here"),
    "images": N_("Thumbnail backgrounds are drawn here"),
    "youtube": N_("Videos are published to a folder"),
}
METRIC_NAMES = {
    "wait": N_("Average wait for a decision"),
    "first": N_("Approved at the first review"),
    "retry": N_("Steps that needed a retry"),
    "time": N_("From start to end, excluding reviews"),
    "failed": N_("Failed permanently"),
}
METRIC_RESULTS = {
    "met": N_("On target"),
    "missed": N_("Off target"),
    "no data": N_("No data yet"),
}


def create_translator(language: str) -> Translator:
    """Return a translator for use outside a page."""
    return Translator(language, [LOCALE, CATALOGUES])
