"""A profile for people: exports, pages and plots."""
