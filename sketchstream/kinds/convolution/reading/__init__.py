"""Answers of a published sketch and their intervals."""
