"""GPU hosts: RunPod, its stand-in, and ffmpeg on this machine, behind one port."""

from retoma_apps.providers.captions import Segment, Style, parse_srt
from retoma_apps.providers.gpu.local import LocalHost
from retoma_apps.providers.gpu.port import OPERATIONS, GpuHost, HostUnavailable, Operation
from retoma_apps.providers.gpu.render_requests import AddAudio, Caption, Image, Img2Vid, VideoFormat, filename
from retoma_apps.providers.gpu.runpod import RunPodHost, RunPodSettings
from retoma_apps.providers.gpu.zooms import Zoom

__all__ = [
    "OPERATIONS",
    "AddAudio",
    "Caption",
    "GpuHost",
    "HostUnavailable",
    "Image",
    "Img2Vid",
    "LocalHost",
    "Operation",
    "RunPodHost",
    "RunPodSettings",
    "Segment",
    "Style",
    "VideoFormat",
    "Zoom",
    "filename",
    "parse_srt",
]
