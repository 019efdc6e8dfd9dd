"""Tests of JavaScript, Go and Rust taken apart: assertions that report, what decides, and what leads to what.

`braces` is what a language has to tell; `javascript`, `go` and `rust` tell it.
"""
