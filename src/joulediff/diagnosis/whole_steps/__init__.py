"""Steps that are compared as a whole, because a side has no operators: their rows are functions of the user's."""
