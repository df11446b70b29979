"""`python -m sliceformer_lab.benchmark`: how fast the operators are and what they hold, measured side by side."""
