"""Audits of single kinds."""
