"""Finding the source of a stack: installed, unpacked, in a wheel file, or released on a package index."""
