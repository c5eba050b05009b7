"""Runs beside a client that openapi-python-client generated: submit, show, list and cancel, all typed."""

from __future__ import annotations

import json
import sys

from generated import AuthenticatedClient  # type: ignore[import-not-found]
from generated.api.gpu import cancel_job, list_jobs, show_job, submit_img2vid  # type: ignore[import-not-found]
from generated.models import (  # type: ignore[import-not-found]
    Image,
    Img2VidJob,
    JobAccepted,
    JobCancelled,
    JobDetails,
    JobPage,
    Problem,
)

address, key = sys.argv[1:]
client = AuthenticatedClient(base_url=address, token=key, prefix="", auth_header_name="X-API-Key")
image = Image(id="1", image_url="https://example.com/1.png", duracao=5.0)
accepted = submit_img2vid.sync(client=client, body=Img2VidJob(images=[image], id_roteiro=34))
assert isinstance(accepted, JobAccepted)
shown = show_job.sync(accepted.job_id, client=client)
listed = list_jobs.sync(client=client, id_roteiro=34)
cancelled = cancel_job.sync(accepted.job_id, client=client)
missing = show_job.sync("orc-nothing", client=client)
refused = list_jobs.sync(client=AuthenticatedClient(base_url=address, token="wrong"))
assert isinstance(shown, JobDetails)
assert isinstance(listed, JobPage)
assert isinstance(cancelled, JobCancelled)
assert isinstance(missing, Problem)
assert isinstance(refused, Problem)
print(
    json.dumps(
        {
            "accepted": accepted.status,
            "shown": shown.data.additional_properties["id_roteiro"],
            "listed": [job.job_id for job in listed.jobs] == [accepted.job_id],
            "cancelled": cancelled.message,
            "missing": [missing.status, missing.code],
            "refused": [refused.status, refused.code],
        }
    )
)
