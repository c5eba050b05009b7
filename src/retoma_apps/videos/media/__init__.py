"""Sound, pictures and subtitles of a video: work on files only, which knows nothing of runs."""
