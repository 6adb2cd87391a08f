"""The configuration file: schema, loading, environment variables, and checks."""
