"""Where events and the bytes they speak of are kept: append first, acknowledge after."""
