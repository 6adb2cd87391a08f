"""Cheap or published estimators: baselines for the default."""
