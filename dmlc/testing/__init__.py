"""How near results are to the reference, and how near they must be."""
