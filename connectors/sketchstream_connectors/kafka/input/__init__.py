"""The input topic, read as one member of a consumer group, and samples of it."""
