"""Commands that answer questions from publications: profiles, overlap of groups, estimates.

In: arguments, published files or windows. Out: tables, JSON, CSV, pages. Touches: published data, reading.
"""
