"""Counts in a declared tree, such as country, region and city: consistent answers at all levels."""
