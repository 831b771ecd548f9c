"""What each choice of participation does."""
