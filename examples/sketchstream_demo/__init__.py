"""The demo: the main job on real flights, its report, and a chapter for each further kind of sketch.

In: flights. Out: lines for people, CSV files, plots and a page. Touches: the demo's folder.

An example that is installed with the package, so that `sketchstream demo` runs it anywhere.
"""
