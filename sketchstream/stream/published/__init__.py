"""What workers publish beside sketches: frontiers, and evidence about windows; readers need nothing of open state."""
