"""Commands for the life of one sketch file: its key, creation, updates, releases, sealing, and how parts are joined.

In: arguments, events, sketch files. Out: sketch files, text. Touches: files that the user names; entropy.
"""
