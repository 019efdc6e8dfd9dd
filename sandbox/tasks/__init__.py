"""Task specifications, their environments and store, import and export formats, and generators."""
