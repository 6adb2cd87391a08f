"""Finds where the values of a block of a container file begin and end: they follow each other without lengths.

In: the schema of the values, bytes, blocks. Out: bounds of values, and which blocks are damaged. Touches: nothing.
Source: the Avro 1.12 specification, "Object Container Files".
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.kernels.tokens import MISSING
from sketchstream_connectors.decode import binary_kernels as kernels
from sketchstream_connectors.decode.avro import tree
from sketchstream_connectors.decode.avro.plan import compile_plan
from sketchstream_connectors.decode.avro.schema import Type


class BlockSplitter:
    """Finds the values in blocks of one schema.

    Args:
        schema: schema of the writer; each of its values takes a byte at least.
    """

    def __init__(self, schema: Type) -> None:
        self._schema = schema
        plan = compile_plan(schema, ())
        self._plan = None if plan is None else (np.array(plan.rows, np.int64), np.array(plan.jumps, np.int64))

    def split(self, buffer: Bytes, edges: Ints, counts: Ints) -> tuple[Ints, Ints, Flags]:
        """Bounds of all values, and which blocks are whole.

        A block is whole if it has the number of values in its head, and the last one ends where the block does. In a
        block that is not, nothing is known of any value: all of them are empty, which no value of the schema is.

        Args:
            buffer: uint8.
            edges: (blocks + 1,) where each block begins, and the last one ends.
            counts: (blocks,) values of each block, at least 1.

        Returns:
            (n,) starts, (n,) ends, (blocks,) whether a block is whole.
        """
        n = int(counts.sum())
        last = np.cumsum(counts) - 1
        limits = np.repeat(edges[1:], counts)
        starts = np.full(n, -1, np.int64)
        starts[last - counts + 1] = edges[:-1]
        if self._plan is None:
            ends = self._by_tree(buffer, starts, limits)
        else:
            ends = _by_loop(*self._plan, buffer, starts, limits)
        whole = ends[last] == edges[1:]
        good = np.repeat(whole, counts)
        begins = np.where(starts >= 0, starts, np.roll(ends, 1))
        return np.where(good, begins, 0), np.where(good, ends, 0), whole

    def _by_tree(self, buffer: Bytes, starts: Ints, limits: Ints) -> Ints:
        """Find the ends of values as `_by_loop` does, for a schema that has no plan."""
        ends = np.full(starts.size, -1, np.int64)
        data = buffer.tobytes()
        at: int | None = None
        for i in range(starts.size):
            at = int(starts[i]) if starts[i] >= 0 else at
            at = None if at is None else tree.end_of(self._schema, data, at, int(limits[i]))
            ends[i] = -1 if at is None else at
        return ends


def _by_loop(rows: Ints, jumps: Ints, buffer: Bytes, starts: Ints, limits: Ints) -> Ints:
    """(n,) where each value ends; -1: not known.

    Args:
        rows: rows of the plan.
        jumps: jumps of the plan.
        buffer: uint8.
        starts: (n,) where a value begins; -1: where the one before it ended.
        limits: (n,) where its block ends.
    """
    n = starts.size
    ends = np.full((1, n), -1, np.int64)
    status, kinds = np.empty(n, np.uint8), np.full((1, n), MISSING, np.uint8)
    ids, entries, symbols = np.zeros((0, 2), np.uint64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    plans = ids, entries, rows, jumps, symbols
    none, state = np.empty(0, np.uint8), np.zeros(2, np.int64)
    places = kinds, np.empty_like(ends), ends
    kernels.scan_avro(buffer, starts, limits, kernels.ADJOINING, *plans, status, *places, none, state)
    value_ends: Ints = ends[0]
    return value_ends
