"""Pages and API of policies, endpoints, measurements and promotions."""
