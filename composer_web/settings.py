"""Django settings. Everything that differs between machines comes from `composer_web.env`."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from csp.constants import NONE, SELF
from redis.connection import parse_url

from composer_web.env import REPOSITORY, database_settings, env
from composer_web.ui.staticversion import VERSIONED, static_version

ENV = env()

BASE_DIR = REPOSITORY
SECRET_KEY = ENV.secret()
SECRET_KEY_FALLBACKS = [key for key in map(str.strip, ENV.secret_key_fallbacks.split(",")) if key]
DEBUG = ENV.debug
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", "testserver", ENV.host, *filter(None, ENV.public_hosts.split(","))]
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in filter(None, ENV.public_hosts.split(","))]
ROOT_URLCONF = "composer_web.urls"
ASGI_APPLICATION = "composer_web.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "channels",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "csp",
    "django_filters",
    "django_htmx",
    "django_tables2",
    "ninja",
    "pgtrigger",
    "composer_web.core",
    "composer_web.accounts",
    "composer_web.ui",
    "composer_web.quotas",
    "composer_web.repositories",
    "composer_web.tasks",
    "composer_web.policies",
    "composer_web.runs",
    "composer_web.evals",
    "composer_web.rollouts",
    "composer_web.review",
    "composer_web.datasets",
    "composer_web.alerts",
    "composer_web.gateway",
    "composer_web.live",
    "composer_web.studies",
    "composer_web.system",
]

MIDDLEWARE = [
    "composer_web.core.network.latency.timing",
    "composer_web.core.network.compression.CompressionMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "composer_web.ui.staticfiles.StaticFilesMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "composer_web.accounts.audit_middleware.middleware",
    "composer_web.accounts.access.middleware",
    "composer_web.accounts.mfa_middleware.second_factor",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "composer_web.api.views.unstorable_middleware",
    "allauth.account.middleware.AccountMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# A pool, never CONN_MAX_AGE: kept connections leak under ASGI. Health checks survive a restarted Postgres.
DATABASES = {
    "default": {
        **database_settings(ENV.database_url),
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"pool": {"min_size": 1, "max_size": ENV.database_pool, "timeout": 10.0}},
    }
}

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = ["composer_web.accounts.backends.Backend"]
ACCOUNT_ADAPTER = "composer_web.accounts.http.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_UNIQUE_EMAIL = False  # addresses are no credential here
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_FORMS = {"login": "composer_web.accounts.http.forms.LoginForm"}
ACCOUNT_RATE_LIMITS = {"login": "60/m/ip", "login_failed": "20/m/ip,5/5m/key", "reauthenticate": "10/m/user"}
MFA_ADAPTER = "composer_web.accounts.http.adapters.MFAAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_FORMS = {
    "add_webauthn": "composer_web.accounts.http.webauthn_forms.AddKeyForm",
    "edit_webauthn": "composer_web.accounts.http.webauthn_forms.RenameKeyForm",
    "authenticate_webauthn": "composer_web.accounts.http.webauthn_forms.UseKeyForm",
    "reauthenticate_webauthn": "composer_web.accounts.http.webauthn_forms.ConfirmByKeyForm",
}
MFA_TOTP_TOLERANCE = 0  # a used code is remembered for one period: with more it would be good again afterwards
MFA_ALLOW_UNVERIFIED_EMAIL = True
SOCIALACCOUNT_ADAPTER = "composer_web.accounts.http.adapters.OIDCAdapter"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False  # an address alone never opens an account that is there already
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "oidc",
                "name": ENV.oidc_name,
                "client_id": ENV.oidc_client_id,
                "secret": ENV.oidc_client_secret,
                "settings": {"server_url": ENV.oidc_issuer},
            }
        ]
        if ENV.oidc_issuer
        else [],
    }
}
# Counts attempts and remembers used codes: shared by all web processes. Nothing else is kept there.
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": ENV.redis_url, "KEY_PREFIX": "oc"}
}
_MAIL = urlsplit(ENV.email_url)
EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
EMAIL_HOST, EMAIL_PORT = _MAIL.hostname or "", _MAIL.port or 587
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_MAIL.username or ""), unquote(_MAIL.password or "")
EMAIL_USE_SSL, EMAIL_USE_TLS = _MAIL.scheme == "smtps", _MAIL.scheme == "smtp" and bool(_MAIL.username)
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = ENV.email_from
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
# A suite of some hundred bundles is one body: a bundle of a real package has about 130 kB.
DATA_UPLOAD_MAX_MEMORY_SIZE = 32 * 2**20
SESSION_COOKIE_AGE = 14 * 86400
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = ENV.https
SECURE_HSTS_SECONDS = 31_536_000 if ENV.https else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.https else None
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],  # charts style through the object model; nothing is inline
        "img-src": [SELF, "data:", "blob:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [SELF],
        # The log-in form is answered by a way to the provider, which browsers count as its action.
        "form-action": [SELF, *([ENV.oidc_issuer] if ENV.oidc_issuer else [])],
        "frame-ancestors": [NONE],
    }
}

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/" if DEBUG else f"/static/{static_version(BASE_DIR / 'static')}/"
STATICFILES_DIRS = [path for path in (BASE_DIR / "static",) if path.is_dir()]
STATIC_ROOT = ENV.data / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
WHITENOISE_USE_FINDERS = True  # no collectstatic step between a checkout and a running product
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_IMMUTABLE_FILE_TEST = VERSIONED.pattern

# Pub/sub only: the core layer drops the newest messages and dies when a socket is idle for 5 s.
# The databases of a Redis server share its channels: the prefix keeps apart installations that share the server.
CHANNEL_PREFIX = f"asgi.{parse_url(ENV.redis_url).get('db', 0)}"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [ENV.redis_url], "prefix": CHANNEL_PREFIX},
    }
}

DJANGO_TABLES2_TEMPLATE = "partials/table.html"
FORM_RENDERER = "composer_web.ui.widgets.Renderer"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        name: {"level": "WARNING"}
        for name in ("django.server", "httpx", "celery.worker.strategy", "celery.app.trace", "celery.beat")
    },
}
