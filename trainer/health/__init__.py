"""Whether a run goes well: signs as numbers, the sentences they are worth, and the end of a run."""
