"""The client's half of every local solver; the server's half goes by the same name."""
