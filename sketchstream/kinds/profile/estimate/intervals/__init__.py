"""Variances, brackets and the ends of intervals."""
