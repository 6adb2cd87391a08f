"""Made-up visits of three weeks for the examples: users, campaigns, shops.

    python examples/visits.py [--users 8000] [--days 21] [-o visits.jsonl]

In: how many users and days. Out: a file of JSON lines, ordered by time. Touches: that file.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

CAMPAIGNS = ("spring", "brand", "sale")
SHOPS = 10
START = datetime(2024, 5, 6, tzinfo=UTC)


def visits(users: int, days: int) -> list[dict[str, str]]:
    """Each user comes on a day with a chance of a third, some of them often; a third of the users see two campaigns."""
    draw = random.Random(7)
    found = []
    for user in range(users):
        seen = draw.sample(CAMPAIGNS, 2 if user % 3 == 0 else 1)
        for day in range(days):
            if draw.random() < 1 / 3:
                for _ in range(1 + int(draw.expovariate(1))):
                    at = START + timedelta(days=day, seconds=draw.randrange(86_400))
                    shop = f"shop-{min(int(draw.expovariate(0.4)), SHOPS - 1)}"
                    found.append(
                        {"user": f"u{user}", "campaign": draw.choice(seen), "shop": shop, "ts": at.isoformat()}
                    )
    return sorted(found, key=lambda one: one["ts"])


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=8000)
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("-o", "--output", type=Path, default=Path("visits.jsonl"))
    options = parser.parse_args()
    with options.output.open("w") as file:
        for one in visits(options.users, options.days):
            file.write(json.dumps(one) + "\n")


if __name__ == "__main__":
    main()
