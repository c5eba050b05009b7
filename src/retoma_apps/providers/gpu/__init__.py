"""GPU hosts: RunPod, its stand-in, and ffmpeg on this machine; one port for all."""

from retoma_apps.providers.captions import Segment, Style, parse_srt
from retoma_apps.providers.gpu.host import OPERATIONS, GpuHost, HostUnavailable, Operation
from retoma_apps.providers.gpu.local import LocalHost
from retoma_apps.providers.gpu.orders import AddAudio, Caption, Image, Img2Vid, Picture, filename
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
    "Picture",
    "RunPodHost",
    "RunPodSettings",
    "Segment",
    "Style",
    "Zoom",
    "filename",
    "parse_srt",
]
