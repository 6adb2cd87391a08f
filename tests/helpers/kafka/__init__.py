"""What tests against Kafka share: record batches, applications with their workers, schedules of faults."""
