"""What workers publish with sketches: frontiers, and evidence about windows; readers need nothing of open state."""
