"""Blogs: WordPress with the plugin AutoWriter, and a local folder, behind one port."""

from retoma_apps.providers.wordpress.codes import CODES, CodeRule
from retoma_apps.providers.wordpress.errors import PostChanged, PublicationFailed, SiteRejected
from retoma_apps.providers.wordpress.local import LocalBlog
from retoma_apps.providers.wordpress.notifications import Notification, read_notification
from retoma_apps.providers.wordpress.port import (
    Article,
    Blog,
    BlogInfo,
    BlogSite,
    Event,
    Image,
    JobStatus,
    MissingImage,
    OpenBlog,
    PostLink,
    Publication,
    Published,
    Seo,
)
from retoma_apps.providers.wordpress.registry import PROVIDERS, configured_providers
from retoma_apps.providers.wordpress.settings import WordPressSettings
from retoma_apps.providers.wordpress.signature import Credentials
from retoma_apps.providers.wordpress.wordpress import CONNECTION, WordPress
