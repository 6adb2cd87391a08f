"""Answers of a published projection, as tables and pictures."""
