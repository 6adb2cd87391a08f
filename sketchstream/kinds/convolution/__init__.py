"""Kind `convolution`: series of counts and tables seen through filters, with noise in the spectrum."""
