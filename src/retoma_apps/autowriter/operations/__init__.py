"""What routes and pages do with blogs, articles and imports."""
