"""HTTP, and nothing else: a handler decodes, makes one call, encodes."""
