"""The worker: its loop, its partitions, and its decisions about them."""
