"""Exports of rollouts, in formats that other tools read, and saved queries."""
