"""What kinds of the form `A x + noise` share: privacy, budgets, events, and the bases of specs, kinds and answers."""
