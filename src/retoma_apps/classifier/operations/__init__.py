"""What routes, pages and callbacks do with runs: start, read and change them."""
