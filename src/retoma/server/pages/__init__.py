"""The pages that people look at: HTML made here, forms that work without scripts."""
