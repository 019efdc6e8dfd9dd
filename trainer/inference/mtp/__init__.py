"""MTP draft head for speculative decoding: its architecture (`head`) and its training (`distil`)."""
