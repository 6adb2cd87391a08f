"""Uncertainty of every number of a profile, from the linear estimates: what intervals are taken from."""
