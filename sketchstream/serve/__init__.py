"""What was sealed, read back: the store of sealed sketches and the query service.

In: sealed sketches and frontiers. Out: profiles with completeness. Touches: files and topics it is told to read.
"""
