"""Charts, the tables that belong to them, pages and cards, for answers of all kinds.

In: numbers with names, as plain data. Out: pictures and HTML. Touches: the templates in
`sketchstream/templates`, reading.
"""
