"""Price the items of orders: quantity times price, with the discount of the customer's group."""

import numpy as np
import pandas as pd


def load(rows):
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "group": rng.integers(0, 12, rows),
            "quantity": rng.integers(1, 20, rows),
            "price": rng.uniform(1.0, 90.0, rows),
            "discount": rng.uniform(0.0, 0.3, rows),
        }
    )


def add_amount(orders):
    orders = orders.copy()
    orders["amount"] = orders.apply(lambda row: row["quantity"] * row["price"] * (1 - row["discount"]), axis=1)
    return orders


def summarize(orders):
    return orders.groupby("group")["amount"].sum()


def build():
    orders = load(2_500)

    def step():
        return summarize(add_amount(orders))

    return step
