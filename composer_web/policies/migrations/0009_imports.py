"""Imports of models, and the facts that they find."""

import composer_web.accounts.scoping
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models



class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_squashed_0005_people'),
        ('policies', '0001_squashed_0008_template_problem'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='policy',
            name='facts',
            field=models.JSONField(blank=True, default=dict, help_text='trainer.model_import.ModelFacts, as found at the import; empty: an older one'),
        ),
        migrations.CreateModel(
            name='PolicyImport',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('path', models.CharField(help_text="Folder, safetensors or GGUF file on the workers' machine", max_length=400)),
                ('template', models.TextField(blank=True, help_text="Chat template: a shipped one's name, or its text; empty: its own")),
                ('renderer', models.CharField(default='auto', max_length=40)),
                ('description', models.TextField(blank=True)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('running', 'Running'), ('done', 'Done'), ('failed', 'Failed'), ('stopped', 'Stopped')], default='waiting', max_length=8)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('cause', models.TextField(blank=True, help_text='Why there is no policy')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('policy', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='imports', to='policies.policy')),
                ('project', models.ForeignKey(db_default=1, db_index=False, default=composer_web.accounts.scoping.project_now, editable=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.project')),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['waiting', 'running'])), fields=('name',), name='policy_import_open_once'), models.CheckConstraint(condition=models.Q(models.Q(('finished_at', None), ('state__in', ['waiting', 'running'])), models.Q(('finished_at__isnull', False), ('state__in', ['done', 'failed', 'stopped'])), _connector='OR'), name='policy_import_ends_once'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['failed', 'stopped']), _negated=True), models.Q(('cause', ''), _negated=True), _connector='OR'), name='policy_import_says_why')],
            },
        ),
    ]
