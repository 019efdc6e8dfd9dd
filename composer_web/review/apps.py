from django.apps import AppConfig


class ReviewConfig(AppConfig):
    name = "composer_web.review"
    label = "review"
    verbose_name = "Review"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.review import detectors, hooks, label_rules
        from composer_web.rollouts import review_hooks
        from composer_web.runs import config_checks

        detectors.install()
        review_hooks.install(hooks.ReviewHooks())
        config_checks.register(label_rules.check_config)
