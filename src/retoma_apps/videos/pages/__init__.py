"""The pages of videos, `/videos/`: what is being made, channels, what is published here, and what reviewers see."""
