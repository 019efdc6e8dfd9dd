from django.urls import path

from composer_web.datasets.http import corpora_views, views

app_name = "datasets"
urlpatterns = [
    path("datasets/", views.dataset_list, name="list"),
    path("datasets/new/", views.dataset_new, name="new"),
    path("datasets/corpora/", corpora_views.corpus_list, name="corpora"),
    path("datasets/corpora/<str:name>/", corpora_views.corpus, name="corpus"),
    path("datasets/corpora/<str:name>/remove/", corpora_views.corpus_remove, name="corpus-remove"),
    path("datasets/new-corpus/", corpora_views.corpus_new, name="corpus-new"),
    path("datasets/<int:pk>/", views.dataset, name="detail"),
    path("datasets/<int:pk>/remove/", views.dataset_remove, name="remove"),
]
