"""Output of profiles: exports, pages and plots."""
