"""The state of a sketch: its exact noise, and its updates."""
