"""The configuration file: its schema, how it is loaded, environment variables over it, and what it must not say."""
