"""Programs without a framework that is recorded: their outputs and random state. There are no operators."""
