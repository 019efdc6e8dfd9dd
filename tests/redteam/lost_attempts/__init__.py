"""Class D: a failure is made to look like the machine's, so that the attempt is lost instead of judged."""
