"""Everything that speaks to Kafka: sources, the transactional store, publishers, readers and checks."""
