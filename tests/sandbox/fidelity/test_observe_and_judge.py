"""What the probe prints, as facets, and facets against a recorded machine."""

from __future__ import annotations

import pytest

from sandbox.fidelity import Profile, facets, judge, reference
from sandbox.fidelity.judge import RULES, alike
from sandbox.fidelity.observe import FACETS, sections

PROBE = """
@@ who
uid=1000(ada) gid=1000(ada) groups=1000(ada),27(sudo)
@@ users
root:0:/bin/bash
ada:1000:/bin/bash
@@ home
.bashrc
.ssh
notes
@@ home_owner
ada 755
nobody 755
@@ history
12
@@ git_identity
Ada Quill
ada@workstation
@@ git_commits
1
@@ now
1700864000
UTC
@@ home_times
1700000000
1700800000
@@ processes
      1 ada      init
      7 root     systemd-journal
@@ init
/sbin/init                  end
@@ kernel
Linux version 6.1.0 (Debian 12.2.0-14)
@@ status
NoNewPrivs:	1
Seccomp:	2
CapBnd:	0000000000000000
@@ mounts
tmpfs / ro
ext4 /home rw
overlay /home/ada rw
"""


def test_facets_are_read_from_what_the_probe_prints() -> None:
    found = facets(PROBE)
    wanted = {
        "users": 2,
        "groups_of_user": 2,
        "files_of_nobody": True,
        "home_entries": 3,
        "home_files": [".bashrc", ".ssh"],
        "home_age_days": 10.0,
        "history_lines": 12,
        "email_domain": False,
        "commits": 1,
        "processes": 2,
        "daemons": ["systemd-journal"],
        "init_padded": True,
        "kernel_of_distribution": True,
        "seccomp": True,
        "no_new_privileges": True,
        "capabilities_bounded": True,
        "root_on_disk": False,
        "home_on_disk": False,
        "language": False,
        "disk_gib": 0,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found.keys() == FACETS.keys()


def test_facets_hold_no_name_of_a_person_a_host_or_a_project() -> None:
    text = str(facets(PROBE)) + reference().model_dump_json()
    assert not [word for word in ("ada", "quill", "project-0", "user.name", "company.test") if word in text.lower()]


def test_other_output_is_refused() -> None:
    with pytest.raises(ValueError, match="section 'mounts' is missing"):
        facets("@@ who\nuid=0(root)\n@@ processes\n")


def test_the_first_of_two_sections_counts() -> None:
    assert sections("noise\n@@ a\n1\n@@ b\n\n@@ a\n2\n") == {"a": "1", "b": ""}


def test_every_facet_has_a_rule_and_every_rule_a_facet() -> None:
    assert RULES.keys() == FACETS.keys()
    assert {rule.effort for rule in RULES.values()} <= {"cheap", "costly", "kept"}


def test_the_recorded_machine_has_no_tell_against_itself_but_what_is_stated() -> None:
    profile = reference()
    verdict = judge(profile.facets, profile)
    assert {tell.facet for tell in verdict.tells} <= profile.stated.keys()
    complete = {**profile.facets, **{name: value for name, (value, _) in profile.stated.items()}}
    assert judge(complete, profile).score == 100.0


def test_a_tell_costs_its_weight_and_names_the_remedy() -> None:
    profile = Profile(
        how="made up", recorded_at="2026-01-01", facets={"seccomp": False, "commits": 300, "home_files": [".a", ".b"]}
    )
    same = judge({"seccomp": False, "commits": 200, "home_files": [".b", ".a", ".c"], "processes": 3}, profile)
    assert (same.score, same.tells) == (100.0, ())
    other = judge({"seccomp": True, "commits": 1, "home_files": [".c"]}, profile)
    assert [tell.facet for tell in other.tells] == ["commits", "home_files", "seccomp"], "the heaviest first"
    assert other.score == 0.0 and all(tell.remedy for tell in other.tells)
    assert (other.tells[2].seen, other.tells[2].expected) == ("yes", "no")
    assert other.tells[1].expected == "2; only here: .a, .b"


@pytest.mark.parametrize(
    ("seen", "expected", "same"), [(10, 25, True), (10, 26, False), (0, 0, True), (0, 1, False), (250.0, 100, True)]
)
def test_numbers_may_differ_by_a_factor(seen: float, expected: float, same: bool) -> None:
    assert alike(seen, expected, RULES["processes"]) is same
