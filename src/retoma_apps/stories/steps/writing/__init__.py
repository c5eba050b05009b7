"""Write and translate scripts with a language model or offline."""
