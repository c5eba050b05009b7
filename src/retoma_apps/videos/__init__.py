"""Long-form videos: from a topic to a published video, with four reviews on the way."""
