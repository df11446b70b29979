"""What Weights & Biases shows: charts of a run, a comparison of a sweep, and a saved workspace of panels."""
