"""What kinds of the form `A x + noise` share: rules of their parameters, budgets, weights, the base of their kinds.

In: nothing. Out: `spec.LinearSpec`, `kind.LinearKind`, `fields`, `events`. Touches: nothing.
"""
