"""Pure rules of the layer schedules: which tensors travel at which sync of a round."""
