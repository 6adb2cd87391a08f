"""The default estimator: likelihood of what was published, smooth and sparse models, averaged."""
