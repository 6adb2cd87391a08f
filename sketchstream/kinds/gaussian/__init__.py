"""Kind `gaussian`: a count or sum for each item of a listed domain, under exact Gaussian noise."""
