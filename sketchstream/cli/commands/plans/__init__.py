"""Commands for what comes before a sketch: expected errors of every kind, noise for a guarantee, the size wanted.

In: arguments, public expectations. Out: expected errors, a block of the configuration. Touches: no data and no sketch.
"""
