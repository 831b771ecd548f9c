"""Real data sets found on this machine or shipped with us, and their partition over clients. No torch."""
