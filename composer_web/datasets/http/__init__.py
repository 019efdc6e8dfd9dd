"""Pages and API of datasets."""
