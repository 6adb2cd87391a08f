"""What the privacy claim rests on: looks and ledger, guarantee, deployment totals, hygiene, audit.

In: specs, layers, views. Out: losses as exact fractions, statements in plain words. Touches: nothing at import.
"""
