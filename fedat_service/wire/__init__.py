"""Values to bytes and back: codecs, the bundle frame, the JSON messages. No HTTP, no files."""
