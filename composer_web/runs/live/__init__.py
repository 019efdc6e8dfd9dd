"""The page of a run while it changes: its parts, the feed, and the websocket that pushes them."""
