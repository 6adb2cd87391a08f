"""Commands about the guarantee: what all looks cost, signed statements of it, an audit of this build.

In: arguments, publications, ledgers. Out: losses, statements, verdicts. Touches: files that the user names.
"""
