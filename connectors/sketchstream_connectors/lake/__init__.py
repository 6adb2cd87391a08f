"""History from Parquet files: an embedded engine counts equal rows, one process draws the noise, once.

In: nothing. Out: `count`, the exact counts of a window; `job`, from these to a published body. Touches: nothing.
"""
