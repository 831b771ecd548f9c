"""Pure rules over arrays: the mean of a round, the mix of the tiers, the summary of an evaluation."""
