"""The answer to a chat completion: admission, routing, prompt, stream, and the recording of its turns."""
