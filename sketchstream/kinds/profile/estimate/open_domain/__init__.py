"""Open domains: joint inversion of collisions and noise."""
