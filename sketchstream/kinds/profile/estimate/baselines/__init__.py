"""Cheap or published estimators that the default is measured against."""
