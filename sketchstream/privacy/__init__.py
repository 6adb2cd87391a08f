"""What the privacy claim rests on: losses, ledgers, totals and guarantees of deployments, calibration, hygiene.

In: specs, layers, views. Out: losses as exact fractions, statements in plain words. Touches: nothing at import.
"""
