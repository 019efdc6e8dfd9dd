from django.urls import path

from composer_web.review.http import annotation_views, bulk_views, draft_views, item_views, views

app_name = "review"
urlpatterns = [
    path("review/", views.queue_list, name="list"),
    path("review/new/", views.queue_new, name="new"),
    path("review/new/count/", views.fill_count, name="count"),
    path("review/<slug:name>/", views.queue_detail, name="queue"),
    path("review/<slug:name>/preview/", item_views.queue_preview, name="preview"),
    path("review/<slug:name>/next/", item_views.queue_next, name="next"),
    path("review/<slug:name>/<int:pk>/", item_views.item_detail, name="item"),
    path("review/<slug:name>/<int:pk>/label/", item_views.item_label, name="label"),
    path("review/<slug:name>/do/<slug:action>/", views.queue_change, name="change"),
    path("rollouts/bulk/", bulk_views.bulk, name="bulk"),
    path("rollouts/bulk/choices/", bulk_views.bulk_choices, name="bulk-choices"),
    path("annotations/", annotation_views.annotation_list, name="annotations"),
    path("annotations/<int:pk>/delete/", annotation_views.annotation_delete, name="annotation-delete"),
    path("rollouts/<int:pk>/annotations/", annotation_views.annotations_of, name="annotations-of"),
    path("rollouts/<int:pk>/annotations/choices/", annotation_views.annotation_choices, name="annotation-choices"),
    path("rollouts/<int:pk>/annotate/", annotation_views.annotate, name="annotate"),
    path("rollouts/<int:pk>/drafts/", draft_views.create, name="create-draft"),
    path("drafts/", draft_views.draft_list, name="drafts"),
    path("drafts/<int:pk>/", draft_views.draft_detail, name="draft"),
    path("drafts/<int:pk>/<slug:action>/", draft_views.draft_change, name="draft-change"),
]
