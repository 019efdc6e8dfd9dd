"""What people do in a browser, from the first click to the result."""
