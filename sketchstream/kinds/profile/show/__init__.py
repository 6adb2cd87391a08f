"""Output of profiles: exports and plots."""
