"""Pages and API of accounts: sign-in, people, projects, API tokens, and the audit log."""
