"""The default estimator: likelihood of the published numbers, averaged over smooth and sparse models."""
