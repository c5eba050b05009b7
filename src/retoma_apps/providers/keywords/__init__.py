"""Keywords that people search for: DataForSEO, its stand-in, and the words of the theme itself, behind one port."""

from retoma_apps.providers.keywords.dataforseo import DataForSeo, DataForSeoSettings
from retoma_apps.providers.keywords.errors import KeywordsError, KeywordsRefused
from retoma_apps.providers.keywords.offline import OfflineKeywords
from retoma_apps.providers.keywords.port import KeywordProvider, Suggestion, Suggestions
from retoma_apps.providers.keywords.registry import PROVIDERS, configured_providers
