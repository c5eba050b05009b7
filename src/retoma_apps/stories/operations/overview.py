"""A story's status, its scenes, its approval, its publication and its reason for failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from retoma import Client
from retoma.records import Job, Review, Run, StepProgress
from retoma.states import JobState, ReviewState, RunState
from retoma_apps.stories.models import Film, Metadata, Scene, SceneImage, Thumbnails, Upload
from retoma_apps.stories.operations.stories import TRANSLATIONS, is_part_of
from retoma_apps.stories.pipeline import SCENE_STEPS
from retoma_apps.stories.states import Status, status_of

REVIEW = "approval"
_MOST_REVIEWS = 1_000


@dataclass(frozen=True)
class Problem:
    """The job at which a story failed or was rejected, its code and the reason."""

    step: str
    item: str
    code: str
    reason: str


@dataclass(frozen=True)
class Overview:
    """`progress` is by step, and `upload` is the latest publication, whatever has been rerun since."""

    run: Run
    status: Status
    progress: Mapping[str, StepProgress]
    upload: Upload | None
    problem: Problem | None

    @property
    def scene_jobs(self) -> tuple[int, int]:
        """Return how many jobs of scenes have succeeded, and how many there are."""
        steps = [self.progress[step] for step in SCENE_STEPS if step in self.progress]
        return sum(step.jobs.get(JobState.SUCCEEDED, 0) for step in steps), sum(step.total for step in steps)

    @property
    def scenes(self) -> int:
        """Return the number of scenes; 0 until the script is written."""
        found = self.progress.get("generate_image")
        return found.total if found else 0


@dataclass(frozen=True)
class ScenePart:
    """A job of a scene. `language` is set for a translation."""

    step: str
    state: JobState
    language: str | None
    code: str | None
    job: Job


@dataclass(frozen=True)
class SceneOverview:
    scene: Scene
    parts: Sequence[ScenePart]

    @property
    def image(self) -> SceneImage | None:
        found = next((part.job.output for part in self.parts if part.step == "generate_image"), None)
        return SceneImage.model_validate(found) if found else None


@dataclass(frozen=True)
class Details(Overview):
    """`review` is the open review, and `approval` the latest approval."""

    scenes_shown: Sequence[SceneOverview]
    film: Film | None
    thumbnails: Thumbnails | None
    metadata: Metadata | None
    review: Review | None
    approval: Review | None

    @property
    def shows_earlier_film(self) -> bool:
        """Return whether the published video shows another film than the current one."""
        return self.upload is not None and self.film is not None and self.upload.film != self.film.video.file


async def get_overview(client: Client, run: Run) -> Overview:
    progress = {each.step: each for each in await client.runs.get_progress(run.id)}
    return Overview(
        run,
        status_of(run.state, progress.values()),
        progress,
        await _find_upload(client, run.id, progress),
        await _find_problem(client, run),
    )


async def get_details(client: Client, run: Run) -> Details:
    overview = await get_overview(client, run)
    jobs = await client.runs.list_jobs(run.id)
    by_step = {job.step: job for job in jobs if job.state is JobState.SUCCEEDED and not job.item}
    script = by_step.get("generate_script")
    film, thumbnails, metadata = (
        by_step[step].output if step in by_step else None
        for step in ("render_video", "generate_thumbnails", "generate_metadata")
    )
    reviews = await list_reviews(client, run.id)
    return Details(
        **vars(overview),
        scenes_shown=[_describe_scene(Scene.model_validate(each), jobs) for each in (script.output if script else [])],
        film=Film.model_validate(film) if film else None,
        thumbnails=Thumbnails.model_validate(thumbnails) if thumbnails else None,
        metadata=Metadata.model_validate(metadata) if metadata else None,
        review=next((each for each in reviews if each.is_open), None),
        approval=next((each for each in reversed(reviews) if each.state is ReviewState.APPROVED), None),
    )


async def list_reviews(client: Client, run: UUID) -> list[Review]:
    """Return the reviews of a story before its publication, by revision."""
    found = await client.reviews.list(run=run, step=REVIEW, states=None, limit=_MOST_REVIEWS)
    return sorted(found, key=lambda each: each.revision)


def _describe_scene(scene: Scene, jobs: Sequence[Job]) -> SceneOverview:
    parts = [
        ScenePart(job.step, job.state, job.item.partition("|")[2] if job.step == TRANSLATIONS else None, job.code, job)
        for job in jobs
        if is_part_of(job, scene.id)
    ]
    return SceneOverview(scene, parts)


async def _find_upload(client: Client, run: UUID, progress: Mapping[str, StepProgress]) -> Upload | None:
    if "upload_youtube" not in progress:
        return None
    history = await client.runs.get_step_history(run, "upload_youtube")
    found = next((each.output for each in history if each.state is JobState.SUCCEEDED and each.output), None)
    return Upload.model_validate(found) if found else None


async def _find_problem(client: Client, run: Run) -> Problem | None:
    """Return the first failed job: `render_video` fails because of a scene, so scenes come first."""
    if run.state is RunState.REJECTED:
        rejected = [each for each in await list_reviews(client, run.id) if each.state is ReviewState.REJECTED]
        return next((Problem(each.step, each.item, "REJECTED", each.notes or "") for each in rejected), None)
    if run.state not in (RunState.FAILED, RunState.COMPLETED_WITH_ERRORS):
        return None
    errors = await client.runs.get_errors(run.id, with_stack=False)
    failed = [
        Problem(step, item, str(error.get("code") or ""), str(error.get("message") or ""))
        for (step, item), error in errors.items()
        if not error.get("retried")
    ]
    return min(failed, key=lambda each: not each.item, default=None)
