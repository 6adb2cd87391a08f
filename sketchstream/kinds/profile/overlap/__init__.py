"""What groups have in common: patterns of a slot's counters over the groups, and every set of groups from them.

In: states of groups, published histograms of patterns. Out: unions, intersections, differences, with intervals.
Touches: the states it is given, and entropy through `sketchstream.noise`.
Source: docs/theory/overlap.md.
"""
