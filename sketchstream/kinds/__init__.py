"""Kinds of sketch: one file or package each, with its transform, its noise and its way back to answers."""
