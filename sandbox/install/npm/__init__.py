"""The installation recipe for JavaScript and TypeScript repositories."""
