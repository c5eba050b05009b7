"""The dashboard's counts of the orchestrator's jobs."""

from __future__ import annotations

import re

from tests.apps.gpu.gpu_app import GpuApp, img2vid
from tests.deploy.scrape import fetch_metrics, samples
from tests.deploy.test_grafana import panels


async def test_partially_failed_jobs_are_counted_as_failed(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images, gpu_app.standin.faults.partial = {"2"}, True
    gpu_app.standin.faults.fail = {"caption"}
    jobs = [await gpu_app.submit(img2vid(3)), await gpu_app.submit(operation="caption")]
    await gpu_app.submit(operation="addaudio")
    await gpu_app.work()
    assert [(await gpu_app.show(job))["status"] for job in jobs] == ["FAILED", "FAILED"]
    counted = {
        dict(labels)["state"]: count
        for (name, labels), count in samples(await fetch_metrics(gpu_app.api)).items()
        if name == "retoma_runs_ended_total" and count
    }
    (target,) = panels()["Jobs Failed"]["targets"]
    (requested,) = re.findall(r'state=~"([^"]+)"', target["expr"])
    assert sum(count for state, count in counted.items() if re.fullmatch(requested, state)) == len(jobs)
    assert sum(counted.values()) == 3
