"""What routes and pages do with runs: start, read and change them."""
