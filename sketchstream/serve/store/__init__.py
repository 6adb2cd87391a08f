"""The store of publications: its tables, what it keeps of each publication, and where these come from."""
