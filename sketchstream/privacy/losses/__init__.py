"""The loss of one sketch: its history, the measures that add along it, and sums of several measures."""
