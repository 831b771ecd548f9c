"""Worker processes: data, models, local training, simulated stragglers."""
