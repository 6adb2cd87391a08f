"""The state topic: snapshots in one transaction with their input offsets, and recovery from them."""
