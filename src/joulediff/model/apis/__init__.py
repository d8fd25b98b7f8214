"""Records of the energy per API call of an ordinary script: one run of it, and the comparison of two."""
