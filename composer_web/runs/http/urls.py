from django.urls import path

from composer_web.runs.http import reward_views, tab_views, views
from composer_web.runs.launch import form_views, launch_views

app_name = "runs"
urlpatterns = [
    path("runs/", views.run_list, name="list"),
    path("runs/facets/", views.run_facets, name="facets"),
    path("runs/views/", views.view_save, name="view-save"),
    path("runs/views/<int:pk>/delete/", views.view_delete, name="view-delete"),
    path("runs/new/", form_views.run_new, name="new"),
    path("runs/new/check/", form_views.run_check, name="check"),
    path("runs/new/text/", form_views.run_text, name="text"),
    path("runs/templates/", launch_views.template_list, name="templates"),
    path("runs/templates/<int:pk>/", launch_views.template_change, name="template"),
    path("runs/templates/<int:pk>/delete/", launch_views.template_delete, name="template-delete"),
    path("runs/sweeps/", launch_views.sweep_list, name="sweeps"),
    path("runs/sweeps/new/", launch_views.sweep_create, name="sweep-new"),
    path("runs/sweeps/<int:pk>/", launch_views.sweep_detail, name="sweep"),
    path("runs/compare/", views.run_compare, name="compare"),
    path("runs/compare/others/", views.run_others, name="others"),
    path("runs/recent/", tab_views.run_recent, name="recent"),
    path("runs/switch/", tab_views.run_switch, name="switch"),
    path("runs/further/", views.run_further, name="further"),
    path("runs/bulk/tags/", views.run_bulk_tags, name="bulk-tags"),
    path("runs/bulk/<slug:action>/", views.run_bulk, name="bulk"),
    path("runs/<int:pk>/", views.run_detail, name="detail"),
    path("runs/<int:pk>/charts/", tab_views.run_charts, name="charts"),
    path("runs/<int:pk>/panel/", tab_views.run_panel, name="panel"),
    path("runs/<int:pk>/panels/", tab_views.run_panels, name="panels"),
    path("runs/<int:pk>/evals/", tab_views.run_evals, name="evals"),
    path("runs/<int:pk>/config/", tab_views.run_config, name="config"),
    path("runs/<int:pk>/logs/", tab_views.run_logs, name="logs"),
    path("runs/<int:pk>/system/", tab_views.run_system, name="system"),
    path("runs/<int:pk>/config.yaml", form_views.run_file, {"form": "yaml"}, name="yaml"),
    path("runs/<int:pk>/config.toml", form_views.run_file, {"form": "toml"}, name="toml"),
    path("runs/<int:pk>/part/<slug:part>/", views.run_part, name="part"),
    path("runs/<int:pk>/metrics/", views.run_metrics, name="metrics"),
    path("runs/<int:pk>/marks/", views.run_marks, name="marks"),
    path("runs/<int:pk>/labels/", views.run_labels, name="labels"),
    path("runs/<int:pk>/reward/", reward_views.run_reward, name="reward"),
    path("runs/<int:pk>/<slug:action>/", views.run_action, name="action"),
]
