"""A made-up log of what users of a shop did."""

import torch

LOGGED = 40000


def latest_ids(catalogue_size, users, length):
    """Return the latest ids of some users of the log."""
    log = torch.randint(catalogue_size, (LOGGED, length))
    return log[torch.randperm(LOGGED)[:users]]
