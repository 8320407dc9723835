"""Data sets in the files that they are published in, each read as records."""
