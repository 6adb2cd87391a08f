"""Filters over a group, and the noise of each of its Fourier coefficients."""
