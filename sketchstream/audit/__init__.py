"""The audit: laws of the noise, claims of the ledger and whole sketches, each attacked, and the report of it."""
