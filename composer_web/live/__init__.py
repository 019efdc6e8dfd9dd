"""The websocket of live pages: topics, hints that something changed, and the limits of one connection."""
