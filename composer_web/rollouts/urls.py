from django.urls import path

from composer_web.rollouts import finding_views, fork_views, group_views, redteam_views, views

app_name = "rollouts"
urlpatterns = [
    path("rollouts/", views.rollout_list, name="list"),
    path("rollouts/<int:pk>/", views.rollout_detail, name="detail"),
    path("rollouts/<int:pk>/turns/", views.rollout_turns, name="turns"),
    path("rollouts/<int:pk>/search/", views.rollout_search, name="search"),
    path("rollouts/<int:pk>/fork/", fork_views.fork, name="fork"),
    path("forks/<int:pk>/cancel/", fork_views.cancel, name="fork_cancel"),
    path("groups/<int:pk>/", group_views.group_detail, name="group"),
    path("rollouts/<int:pk>/tokens/", views.rollout_tokens, name="tokens"),
    path("rollouts/<int:pk>/download/", views.rollout_download, name="download"),
    path("findings/", finding_views.finding_list, name="findings"),
    path("findings/redteam/", redteam_views.red_team, name="redteam"),
    path("findings/<int:pk>/", finding_views.finding_detail, name="finding"),
    path("findings/<int:pk>/decide/", finding_views.finding_decide, name="decide"),
    path("findings/audit/<int:run_id>/", finding_views.audit_run, name="audit"),
]
