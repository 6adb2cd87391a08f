"""Estimates with their uncertainty: variances, brackets, k+ numbers that fall, exact laws of few items."""
