"""A head that guesses several tokens ahead, for speculative decoding: what it is (`head`), how it learns (`distil`)."""
