"""The embedded CPU engine: continuous batching for dense decoders behind the inference contract."""
