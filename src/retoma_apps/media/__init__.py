"""Audio, pictures and subtitles of a video: functions on files only, independent of runs."""
