"""Every page and every state of a page: accessibility, sizes, failures, pictures."""
