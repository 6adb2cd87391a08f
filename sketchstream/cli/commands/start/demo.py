"""`sketchstream demo`: the example `sketchstream_demo`, which is installed with the package (`examples/`)."""

from sketchstream_demo.command import command

__all__ = ["command"]
