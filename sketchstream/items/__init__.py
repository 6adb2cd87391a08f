"""Items, weights and keys: from what a user hands over to the slots of a domain and the sums in a state.

In: arrays, columns of records, files of keys and of items. Out: `arrays.Items`, `columns.RecordColumn`,
`domains.Index`, `key.Key`. Touches: states that are added to; files of keys and of items.
"""
