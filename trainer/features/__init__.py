"""What a frozen image tower gives for every picture, computed once and kept on disk."""
