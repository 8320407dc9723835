"""The families of measures, one file each."""
