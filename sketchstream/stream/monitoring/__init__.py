"""What a worker shows its operator: metrics, health, clocks, and how long records have been waiting."""
