"""Pages and API of gateway settings and production sessions. (Chat completions: `composer_web.gateway.serving`.)"""
