"""Retired terms: names that were replaced by the field's own, and must not come back.

Each entry is a pattern and what to write instead. Files that must name old terms (tables of renamed keys, migrations,
tables of old commands) are exempt.
"""

from __future__ import annotations

import re
import subprocess

from . import lock

RETIRED: dict[str, str] = {
    r'"""Of [a-z]': "a docstring that says first what the thing is",
    r"expert_plausibility": "router_replay_threshold",
    r"repeat_experts|repeats the experts": "enable_router_replay, router replay",
    r"checkpoint_activations|compute_again": "activation_checkpointing",
    r"logits_at_once": "lm_head_chunk_size",
    r"machines_least": "min_nodes",
    r"decay_from": "decay_start",
    r"final_share": "min_lr_ratio",
    r"clip_norm": "max_grad_norm",
    r"row_tokens": "seq_len",
    r"long_share|long_tokens": "long_context_share, long_context_seq_len",
    r"max_staleness|lag_limit": "max_off_policy_steps, staleness_limit",
    r"straggler_factor|trim_to": "straggler_timeout_factor, straggler_min_share",
    r"harder_later": "easy_to_hard (curriculum)",
    r"most_hints|least_shift|turns_at_once": "max_hints, min_shift, micro_batch_turns",
    r"most_redacted|least_turns|least_sessions": "max_redacted_share, min_turns, min_sessions",
    r"skip_non_finite": "max_non_finite_steps",
    r"ready_limit|surplus_groups": "max_buffered_groups, over_sampled_groups",
    r"HeadsConfig|AsynchronyConfig|SamplerConfig": "MTPConfig, OrchestratorConfig, CurriculumConfig",
    r"guessed_tokens": "draft_tokens",
    r"EngineLied|EngineDiffers|AllDiffer": "InvalidEngineResponse, WeightMismatch, AllReplicasMismatch",
    r"deal_out|hand_over": "scatter_state, publish_checkpoint",
    r"Workshop|Roster|Beginnings|Narrowing": "TaskBuilder, ReplicaRegistry, PrefixTree, SamplingMask",
    r"numba_half|shared_rows": "numba_bf16, prefix_sharing",
    r"norm_in_half|gate_in_half": "fuse_rms_norm, fuse_swiglu",
    r"open_M|SamplingSupport": "mask_M, SamplingMasks",
    r"ShardedLearner|ShardedRLStage": "Learner with a ShardedBackend, RLStage with ShardedRL",
    r"Displaced|prove_seconds|prove_again": "DeploymentMoved, verify_seconds, verify_again",
    r"guess(?:es|ed)? (?:tokens )?ahead|guesses tokens|guessed_BTV": "drafts tokens, draft head",
    r"MemberSpec|read_members|fixed_members|members_arguments": "ReplicaSpec, read_replicas, fixed_replicas",
    r"Parted|pack_parted|wide_below": "BitmapBlock, pack_bitmap, wide_flagged",
    r"tripped": "breaker_open (circuit breaker)",
    r"most_held_out": "max_held_out",
    r"\b(?:Twin|Disguise)\b|candidate_twins|draw_twins": "SiblingTest, Renaming, PreparedSuite, candidate_siblings",
    r"most_drop": "max_drop",
    r"trainer[./](?:asynchrony|parallel|replay)": "trainer/orchestrator, trainer/distributed, trainer/router_replay",
    r"sandbox[./]tasks[./](?:generators|packages|formats|errors|sdist|archives|artefacts|history|ownership)": (
        "sandbox/generators, packages, formats, errors, repositories; tasks/procedural"
    ),
    r"sandbox[./]install[./](?:sources|checkout|licences|recipe|goals|python|npm|cargo|go|services)": (
        "sandbox/repositories, sandbox/install/recipes"
    ),
    r"sandbox[./]harness[./]fidelity": "sandbox/fidelity",
    r"REWORKINGS|reworkable|checked_task": "REFACTORINGS, refactorable, verified_task",
    r"shop: TaskBuilder": "builder: TaskBuilder",
    r"\b(?:MOST|LEAST)_[A-Z]": "MAX_…, MIN_…",
    r"accounts[./](?:reach|owners|owned|signing_in|changes|key_forms)": "permissions, url_resources, scoping, "
    "mfa_middleware, audit_triggers, webauthn_forms",
    r"(?:ops|core)[./](?:shelves|sheets|cells|posted|sealed|outbound|presence)": "saved_views, table_writers, "
    "table_rendering, form_parsing, encryption, safe_http, heartbeats",
    r"runs[./](?:whereabouts|marks|device_room|text)(?:\.py)?": "paths, annotations, gpu_memory, config_io",
    r"rollouts[./](?:closely_api|kept_models|narrowing|onlooking|weighing|judging|auditing|reading)": "trajectory_api, "
    "export_models, turn_filters, live_turns, advantages, llm_judge, findings, trajectory_store",
    r"gateway[./](?:beginning|standing|holding|outside|wire|answers|watching)(?:\.py)?": "pipeline, token_lookup, "
    "export_links, proxy, openai_types, responses, canary",
    r"evals[./](?:sides|standings)|policies[./](?:carrying|orders)|tasks[./]orders|review[./]applying": "behaviour_scores, "
    "leaderboard, measurement_worker, measurement_jobs, generation_jobs, label_rules",
    r"Served now|Nothing to tell|By way of\b(?= *\"|<)|Keep clear of": "In production, No notifications, Source, Decontaminate "
    "against",
    r"so from now on|worth nothing any more": "… saved; … is withdrawn",
    r"\$ per million|Requests of one token|Most tokens of": "Input/Output $ per 1M, Requests/min per API token, Max output "
    "tokens",
    r"\"(?:Made|Made by|Made since|Took|Side)\"": "Created, Created by, Created since, Duration, Split",
}
PHRASES: dict[str, str] = {
    r"What will run": "Run summary",
    r"Made by run": "Created by run",
    r"fields? to mend|mend the marked": "error to fix; fix highlighted fields",
    r"Everything as in": "No changes",
    r"A rank holds": "Trainer memory per GPU",
    r"No money": "Cost unavailable",
    r"Harder later": "Curriculum strength",
    r"Drop solved": "Exclude never solved, Exclude always solved",
    r"Ends without finishing": "Truncated rollouts",
    r"Groups without signal": "Zero-advantage groups",
    r"[Bb]roken calls?": "Malformed tool call",
    r"lost to infrastructure": "infra errors",
    r"nats? a token": "nats/token",
    r"Where the time goes": "Time breakdown",
    r"Not accounted for": "Other",
    r"Of it apply": "Apply",
    r"As dispatched": "Dispatch order",
    r"[Aa] row a prompt": "Rows: prompts; cells: rollouts",
    r"(?:Their|Whose) ways part": "Diverges at",
    r"Tick two": "Select two",
    r"Go on after turn": "Fork from turn",
    r"Policy text": "Model output",
    r"Whole range": "Reset zoom",
    r"(?<!shortcuts )Keys \(\?\)": "Keyboard shortcuts (?)",
    r"May be wrong": "Known false positives",
    r"Reviewers of each": "Reviewers per rollout",
    r"the newest \S+ (?:join|are added)|recorded rollouts? joins?": "Newest N added",
    r"[Tt]his is needed": "Required, with the remedy",
    r"Make the queue": "Create queue",
    r"Set their tasks aside": "Exclude tasks",
    r"Waits? for you": "Awaiting you",
    r"Open a suite": "New suite",
    r"Review into it": "Add via review",
    r"(?:label|verbose_name)=\"Controls\"": "Validation",
    r"Tags, sides": "Tags, splits",
    r"Tasks of each generator": "Tasks per generator",
    r"[Aa]lso tasks that two reviewers": "Include unreviewed",
    r"nobody beats it": "Pareto-optimal",
    r"Beside other suites": "Benchmark comparison",
    r"leaves zero out|task is clear|clear when": "Significant, not significant",
    r"By chance": "p-value",
    r"(?:the other way|comparison) round": "Swap",
    r"Before, during, after": "Baseline, During training, Final",
    r"cache a token": "KV cache per token",
    r"still, in all|engine in all": "total",
    r"[Kk]ept clear of": "Decontaminated against",
    r"went silent": "Offline",
    r"Quiet minutes": "Cooldown",
    r">(?:Keep|Show) these(?=<)": "Save, Apply",
}
"""Home-made wordings that pages showed, as regular expressions → the field's. Only what a page shows is searched."""
SHOWN = ("templates/", "composer_web/", "static/js/", "trainer/config/", "trainer/learning/metrics.py")
EXEMPT = (
    "scripts/words.py",
    "tests/scripts/test_words.py",
    "trainer/config/renamed.py",
    "tests/trainer/config/test_renamed.py",
    "tests/bench/auditor_blind",
    "policies/",
)
PATHS = ("*.py", "*.html", "*.js", "*.md", "*.toml", "*.yml", "Makefile")


def _compiled(table: dict[str, str]) -> list[tuple[re.Pattern[str], re.Pattern[str], str]]:
    """The pattern, for a fast look over a whole file; the same as whole words; what to use instead."""
    return [(re.compile(one), re.compile(rf"(?<!\w)(?:{one})(?!\w)"), instead) for one, instead in table.items()]


TERMS, WORDINGS = _compiled(RETIRED), _compiled(PHRASES)


def in_text(name: str, text: str) -> list[str]:
    """Every retired term, and on a page every retired wording, of a file's text."""
    patterns = [*TERMS, *WORDINGS] if name.startswith(SHOWN) else TERMS
    left = [(pattern, instead) for fast, pattern, instead in patterns if fast.search(text)]
    return [
        f"{name}:{number}: {match[0]!r} is retired; use {instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in left
        if (match := pattern.search(line))
    ]


def problems(under: tuple[str, ...] = ("",)) -> list[str]:
    """Every place that uses a retired term, with the term to use. `under`: where the names of searched files begin."""
    found: list[str] = []
    listed = subprocess.run(
        ["git", "ls-files", *PATHS], cwd=lock.REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in listed:
        path = lock.REPOSITORY / name
        if not name.startswith(under) or name.startswith(EXEMPT) or "/migrations/" in name or not path.is_file():
            continue
        found += in_text(name, path.read_text(encoding="utf-8"))
    return found
