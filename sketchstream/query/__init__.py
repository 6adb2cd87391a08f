"""Publications of workers: windows, the answer for each, and one object per window for notebooks.

In: sealed sketches and frontiers, a configuration. Out: `Window`, `Windows` and their readers. Touches: only
what its sources read. Imports nothing: commands that read one file need few of its modules.
"""
