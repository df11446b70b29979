"""Studies: multiruns that repeat a paper's table, or one of our own, and their report."""
