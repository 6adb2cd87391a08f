"""Evidence about publications for outsiders: signed statements, their verifier, records for a public registry.

In: nothing. Out: nothing. Touches: nothing. `verify_attestation.py` imports nothing of this package: outsiders run that
file alone.
"""
