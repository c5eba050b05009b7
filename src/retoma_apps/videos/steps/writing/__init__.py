"""Research and write scripts with a language model or offline, and report on their quality."""
