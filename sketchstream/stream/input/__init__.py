"""What the input looks like: its partitions, its producers' partitioner, and samples of its records."""
