"""Connections to a cluster: clients, authentication, whole topics read, and the engine's own topics."""
