"""Write the parts of an article: with a language model, or offline from bundled facts."""
