"""Kind `workload`: private answers to a fixed batch of linear queries, with the smallest possible Gaussian noise.

Source: Nikolov, Talwar & Zhang, "The Geometry of Differential Privacy: The Sparse and Approximate Cases", 2013;
docs/theory/workload.md.
"""
