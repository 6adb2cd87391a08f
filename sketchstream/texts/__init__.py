"""Values as text: numbers with the digits that their intervals leave them, names of items, cells of CSV files.

In: nothing. Out: nothing. Touches: nothing.
"""
