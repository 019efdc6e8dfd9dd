from django.urls import path

from composer_web.rollouts.http import (
    finding_views,
    fork_views,
    group_views,
    list_views,
    live_views,
    redteam_views,
    views,
)

app_name = "rollouts"
urlpatterns = [
    path("rollouts/", views.rollout_list, name="list"),
    path("runs/<int:run_id>/rollouts/", views.rollouts_of_run, name="of-run"),
    path("rollouts/waffle/<int:run_id>/", group_views.waffle, name="waffle"),
    path("rollouts/exports/", list_views.export_list, name="exports"),
    path("rollouts/exports/new/", list_views.export_new, name="export-new"),
    path("rollouts/exports/<int:pk>/file/", list_views.export_file, name="export-file"),
    path("rollouts/<int:pk>/", views.rollout_detail, name="detail"),
    path("rollouts/snippets/", views.rollout_snippets, name="snippets"),
    path("rollouts/<int:pk>/preview/", views.rollout_preview, name="preview"),
    path("rollouts/<int:pk>/next-failure/", views.rollout_next_failure, name="next-failure"),
    path("rollouts/<int:pk>/turns/", views.rollout_turns, name="turns"),
    path("rollouts/<int:pk>/partial/", live_views.rollout_partial, name="partial"),
    path("rollouts/<int:pk>/search/", views.rollout_search, name="search"),
    path("rollouts/<int:pk>/fork/", fork_views.fork, name="fork"),
    path("forks/<int:pk>/cancel/", fork_views.cancel, name="fork_cancel"),
    path("groups/<int:pk>/", group_views.group_detail, name="group"),
    path("rollouts/<int:pk>/tokens/", views.rollout_tokens, name="tokens"),
    path("rollouts/<int:pk>/export/<slug:form>/", list_views.trajectory_file, name="file"),
    path("rollouts/<int:pk>/download/", views.rollout_download, name="download"),
    path("findings/", finding_views.finding_list, name="findings"),
    path("findings/figures/", finding_views.finding_figures, name="findings-figures"),
    path("findings/redteam/", redteam_views.red_team, name="redteam"),
    path("findings/<int:pk>/", finding_views.finding_detail, name="finding"),
    path("findings/<int:pk>/preview/", finding_views.finding_preview, name="finding-preview"),
    path("findings/bulk/<slug:action>/", finding_views.finding_bulk, name="findings-bulk"),
    path("findings/<int:pk>/decide/", finding_views.finding_decide, name="decide"),
    path("findings/audit/<int:run_id>/", finding_views.audit_run, name="audit"),
]
