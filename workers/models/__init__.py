"""Networks of the papers, and the way between a torch module and named NumPy arrays."""
