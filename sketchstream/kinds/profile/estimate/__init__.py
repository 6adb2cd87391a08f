"""Reconstruction: laws of counts by each method, unbiased estimates, and the intervals of every number."""
