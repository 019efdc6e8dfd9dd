"""Texts beside what a page shows: help of figures and headings, what a state means, commands that do what a page does."""
