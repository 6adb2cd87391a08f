"""The loss of a deployment: all its publications, their totals and copies, and the guarantee in words."""
