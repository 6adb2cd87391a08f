"""From records to sealed sketches: windows, partition states, snapshots, the worker and its test driver.

In: chunks of decoded records from a source. Out: sealed sketches and frontiers. Touches: only what its interfaces
touch.
"""
