"""The Kafka connector: source, transactional store, publishers, readers and checks."""
