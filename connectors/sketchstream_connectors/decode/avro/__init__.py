"""Avro payloads: schemas, the fields of values, the format."""
