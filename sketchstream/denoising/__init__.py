"""Denoising of published vectors with Gaussian noise: methods, their estimated errors, and errors that are expected.

In: nothing. Out: nothing. Touches: nothing. It knows no sketches: kind `gaussian` uses it for counts, and `denoise` is
public for other vectors, such as means of records.
"""
