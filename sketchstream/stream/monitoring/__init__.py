"""What a worker tells its operator: metrics, health, clocks, and how long records have been waiting."""
