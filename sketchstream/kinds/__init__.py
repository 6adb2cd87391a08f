"""Kinds of sketch: one file each, with its transform, its noise and its way back to answers."""
