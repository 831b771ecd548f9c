"""Methods as rows of five choices: the presets, and what each choice of participation does."""
