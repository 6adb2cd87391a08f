"""Compares the readers of Avro and Protobuf with strict ones on random and damaged records: `make fuzz-formats`.

In: the number of records (a million), of schemas of each format (20), and the first seed (0). Out: a line for each
format; exit code 1 at the first difference, with the seed and the bytes. Touches: memory pages of its own.

Values have the frames of Confluent, Apicurio and AWS Glue, or none. A million records take about a minute of
a processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from helpers import format_fuzz  # the folder of the tests is no package


def main() -> int:
    """Run both formats."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="of both formats together")
    parser.add_argument("--schemas", type=int, default=20, help="of each format")
    parser.add_argument("--seed", type=int, default=0, help="of the first schema")
    given = parser.parse_args()
    each = -(-given.records // (2 * given.schemas))
    for name, compare in (("avro", format_fuzz.avro), ("protobuf", format_fuzz.protobuf)):
        begun, good = time.process_time(), 0
        for seed in range(given.seed, given.seed + given.schemas):
            try:
                good += compare(seed, each)
            except AssertionError as difference:
                print(f"{name}, seed {seed}: {difference}", file=sys.stderr)
                return 1
        records = each * given.schemas
        seconds = time.process_time() - begun
        print(
            f"{name}: {records:,} records of {given.schemas} schemas, {good:,} well-formed and {records - good:,} not: "
            f"every verdict and value equals the strict reader's, no byte beyond the end was read ({seconds:.0f} s)",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
