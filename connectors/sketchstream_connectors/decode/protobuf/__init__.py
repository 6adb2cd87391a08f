"""Protobuf payloads: descriptors, the fields of messages, the format."""
