"""The GPU orchestrator: pictures become video on shared GPUs, and a webhook tells the result."""
