"""The home directory that every environment starts from: what a developer's machine has anyway."""

from __future__ import annotations

HOME_FILES = {
    ".gitconfig": """[user]
\tname = Robin Marsh
\temail = robin@workstation
[init]
\tdefaultBranch = main
[pull]
\trebase = true
[alias]
\tst = status --short
\tlg = log --oneline --graph --decorate
""",
    ".profile": """# Read by login shells.
umask 022
if [ -n "$BASH_VERSION" ] && [ -f "$HOME/.bashrc" ]; then
    . "$HOME/.bashrc"
fi
if [ -d "$HOME/.local/bin" ]; then
    PATH="$HOME/.local/bin:$PATH"
fi
""",
    ".bashrc": """# Read by interactive shells.
case $- in
    *i*) ;;
    *) return ;;
esac
HISTCONTROL=ignoreboth
HISTSIZE=2000
HISTFILESIZE=4000
shopt -s histappend checkwinsize
PS1='\\u@\\h:\\w\\$ '
alias ll='ls -alF'
alias gs='git status'
""",
    ".bash_history": """cd repo
git status
ls
git log --oneline | head
python3 -m pytest -q
git diff
less README.md
grep -rn "def " --include=*.py . | head -40
git add -p
git commit
python3 -m pytest -q -x
history | tail
""",
    ".inputrc": """set completion-ignore-case on
set show-all-if-ambiguous on
""",
}
