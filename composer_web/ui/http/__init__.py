"""Pages and API of what people keep of the lists: saved views."""
