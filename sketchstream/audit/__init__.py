"""The audit: tests of noise laws, claims of the ledger and whole sketches, and their report."""
