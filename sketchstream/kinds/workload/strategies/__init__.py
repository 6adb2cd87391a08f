"""Which noise a workload gets, found from its queries alone."""
