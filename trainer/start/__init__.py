"""What a run begins from: its own last step, another run, given towers, or nothing."""
