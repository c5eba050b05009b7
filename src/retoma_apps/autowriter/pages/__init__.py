"""The pages of AutoWriter, `/articles/`: articles, imports, blogs and the contents of reviews."""
