"""A step at several input sizes: the sizes, the series of measurements, and the fit of its growth."""
