"""What sketches with groups have, whatever their kind: the declared list, expressions of sets, answers about sets.

In: nothing. Out: `group_list.Groups`, `expression`, `overlap.Overlap`. Touches: nothing.
"""
