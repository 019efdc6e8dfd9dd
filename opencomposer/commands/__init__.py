"""The commands, a module a subject; each exports its nouns as `NOUNS`."""
