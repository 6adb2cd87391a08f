"""The HTTP API: its paths, what may be asked, and answers as bytes."""
