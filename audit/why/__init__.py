"""Why two paths differ: which schedule, which order, which stage, and how much is noise."""
