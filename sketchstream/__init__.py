"""Updatable, pan-private statistics over streams."""
