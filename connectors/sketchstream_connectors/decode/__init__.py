"""Payloads and rows as arrays: records, fields, and the compiled loops that read them."""
