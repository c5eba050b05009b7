"""GPU hosts: RunPod, its stand-in, and ffmpeg on this machine, behind one port."""

from retoma_apps.providers.gpu.port import OPERATIONS, GpuHost, Operation
from retoma_apps.providers.gpu.registry import PROVIDERS, configured_providers
from retoma_apps.providers.gpu.render_requests import Image, filename
from retoma_apps.providers.gpu.zooms import Zoom
