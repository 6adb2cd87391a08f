"""Schema registries: two read-only calls, a cache on disk, and what to do when none answers."""
