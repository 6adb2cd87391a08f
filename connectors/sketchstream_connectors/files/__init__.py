"""Files, folders and standard input: sources, the snapshot store of a folder, and what is published to a folder."""
