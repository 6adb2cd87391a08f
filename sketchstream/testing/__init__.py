"""For users' own tests: a configuration run in memory, with a clock that tests move."""
