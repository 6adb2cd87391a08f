"""Answers of a published sketch, their intervals and pictures."""
