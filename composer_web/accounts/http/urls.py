from django.urls import path

from composer_web.accounts.http import audit_views, people_views, project_views, views

app_name = "accounts"
urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("logout/", views.Logout.as_view(), name="logout"),
    path("tokens/", views.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", views.revoke, name="token-revoke"),
    path("projects/", project_views.project_list, name="projects"),
    path("projects/new/", project_views.project_new, name="project-new"),
    path("projects/choose/", project_views.project_choose, name="project-choose"),
    path("projects/<slug:slug>/", project_views.project_detail, name="project"),
    path("projects/<slug:slug>/<slug:action>/", project_views.project_change, name="project-change"),
    path("join/", people_views.join, name="join"),
    path("people/", people_views.person_list, name="people"),
    path("people/invite/", people_views.person_invite, name="person-invite"),
    path("people/invitations/<int:number>/withdraw/", people_views.person_withdraw, name="person-withdraw"),
    path("people/<slug:action>/", people_views.person_change, name="person-change"),
    path("audit/", audit_views.audit_log, name="audit"),
    path("audit/export.csv", audit_views.audit_csv, name="audit-csv"),
]
