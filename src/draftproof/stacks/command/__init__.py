"""A launch command as data: what people paste, taken apart, without knowing any stack's options."""
