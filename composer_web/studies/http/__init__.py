"""Pages and API of mid-training studies."""
