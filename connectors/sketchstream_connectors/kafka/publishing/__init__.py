"""The sealed topic: what workers and backfills publish, and how readers get it."""
