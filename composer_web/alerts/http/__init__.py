"""Pages and API of alerts, rules, webhooks and deliveries."""
