"""What the steps of the pipelines do."""
