"""Rooms with one file per sub-command; each holds a click command named `command`, imported when it is called.

In: arguments. Out: files and text. Touches: see each command.
"""
