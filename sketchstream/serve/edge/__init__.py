"""Between the network and the application: connections, limits, and turns of clients."""
