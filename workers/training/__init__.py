"""Local training: start parameters and a solver in, trained parameters out. No network, no clock."""
