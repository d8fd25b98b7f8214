"""Drop the events of accounts that asked for deletion from a day's export."""

import random


def load(count, blocked):
    rng = random.Random(7)
    events = [(rng.randrange(40_000), rng.random()) for _ in range(count)]
    accounts = rng.sample(range(40_000), blocked)
    return events, accounts


def keep_allowed(events, deleted):
    kept = []
    for account, amount in events:
        if account not in deleted:
            kept.append((account, amount))
    return kept


def total_by_bucket(events):
    totals = [0.0] * 64
    for account, amount in events:
        totals[account % 64] += amount
    return totals


def build():
    events, accounts = load(6_000, 400)
    deleted = list(accounts)

    def step():
        return total_by_bucket(keep_allowed(events, deleted))

    return step
