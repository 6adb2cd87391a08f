"""Unbiased linear estimates: the exact inverse of the noise and its variances."""
