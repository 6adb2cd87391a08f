"""Calibration of Gaussian noise: arithmetic on epsilon, delta and sigma that knows nothing of sketches."""
