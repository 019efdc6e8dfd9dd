"""Settings that differ between machines: variables with the prefix `OPENCOMPOSER_`, else `<data>/run/env`."""

from composer_web.env.addresses import database_settings
from composer_web.env.settings import DEFAULT_DATA, PREFIX, REPOSITORY, Env, WrongSetting, env, misspelt

__all__ = ["DEFAULT_DATA", "PREFIX", "REPOSITORY", "Env", "WrongSetting", "database_settings", "env", "misspelt"]
