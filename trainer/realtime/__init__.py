"""Learning from sessions of real users: signals to rewards, sessions to training groups, guards. No database here."""
