"""What every root-mean-square and l2 normalisation here divides by."""
