"""Topics that come with Retoma, as scenes with pictures: what can be produced without a language model.

Each is a file `<language>/<name>.toml`, written for this repository. Its facts name where they can be checked.
"""

from retoma_apps.providers.topics.drawings import (
    Drawing,
    find_drawing,
    format_link,
    parse_link,
    read_drawing,
    write_jpeg,
)
from retoma_apps.providers.topics.library import find_named_scene, find_scene, find_topic, find_translation, list_topics
from retoma_apps.providers.topics.models import Topic, TopicFact, TopicScene, TopicSource
