"""The installation recipe for Go repositories."""
