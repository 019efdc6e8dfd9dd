"""Where checkouts come from: archives, source distributions, git."""
