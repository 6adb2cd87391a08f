"""The state of one partition: what its records make of it, and its snapshots. No clock, no file, no network."""
