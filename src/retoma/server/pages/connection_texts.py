"""Texts of the connections of the providers that come with Retoma, which several applications share, to translate."""

from retoma.translations import N_

PROVIDER_TEXTS = (
    N_("API key"),
    N_("Address"),
    N_("Azure speech"),
    N_("Consent of the channel's owner"),
    N_("Default: that of OpenAI."),
    N_("Empty: YOUTUBE_CLIENT_ID."),
    N_("Empty: YOUTUBE_CLIENT_SECRET."),
    N_("For example brazilsouth."),
    N_("From the settings of AutoWriter."),
    N_("Images"),
    N_("Images, second service"),
    N_("Login"),
    N_("Model"),
    N_("OAuth client id"),
    N_("OAuth client secret"),
    N_("Password"),
    N_("Region"),
    N_("Secret of the plugin"),
    N_("Such as https://blog.example.com."),
    N_("The account is the name of the site, as blogs name it."),
)
