"""What the dashboard counts of the orchestrator's jobs."""

from __future__ import annotations

import re

from tests.apps.gpu.studio import Studio, img2vid
from tests.deploy.scrape import samples, scraped
from tests.deploy.test_grafana import panels


async def test_jobs_that_failed_in_part_are_counted_as_failed(studio: Studio) -> None:
    studio.standin.faults.bad_images, studio.standin.faults.partial = {"2"}, True
    studio.standin.faults.fail = {"caption"}
    jobs = [await studio.submit(img2vid(3)), await studio.submit(operation="caption")]
    await studio.submit(operation="addaudio")
    await studio.work()
    assert [(await studio.show(job))["status"] for job in jobs] == ["FAILED", "FAILED"]
    counted = {
        dict(labels)["state"]: count
        for (name, labels), count in samples(await scraped(studio.api)).items()
        if name == "retoma_runs_ended_total" and count
    }
    (target,) = panels()["Jobs Failed"]["targets"]
    (asked,) = re.findall(r'state=~"([^"]+)"', target["expr"])
    assert sum(count for state, count in counted.items() if re.fullmatch(asked, state)) == len(jobs)
    assert sum(counted.values()) == 3
