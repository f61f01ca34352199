"""From stored quantised weights to real numbers; the formats are those of `checkpoint.precision`."""
