"""Open domains: collisions of items undone together with the noise."""
