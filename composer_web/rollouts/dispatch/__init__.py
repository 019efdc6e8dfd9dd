"""Groups between dispatch and training: pump, verdicts, findings, quarantine, and batches of steps."""
