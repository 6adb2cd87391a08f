"""The demo's chapters: one kind of sketch each, on the same stream of flights, and the report of the first.

In: flights. Out: lines for people, CSV files, a plot and a page. Touches: the demo's folder.
"""
