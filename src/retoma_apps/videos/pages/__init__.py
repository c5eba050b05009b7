"""The pages of videos, `/videos/`: the list, channels, local publications and the contents of reviews."""
