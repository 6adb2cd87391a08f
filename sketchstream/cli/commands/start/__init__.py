"""Commands for the first hour: the demo on real flights, and a first configuration.

In: arguments; records, answers to questions. Out: text, files. Touches: the files that a user names.
"""
