"""Alert rules on metrics, findings and processes; the alerts they raise; delivery by page, e-mail and webhook."""
