"""Files, folders and standard input: sources, the snapshot store of a folder, and publications to a folder."""
