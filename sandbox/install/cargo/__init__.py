"""The installation recipe for Rust repositories."""
