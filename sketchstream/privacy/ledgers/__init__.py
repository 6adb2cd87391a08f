"""Ledgers of one sketch, one for each measure."""
