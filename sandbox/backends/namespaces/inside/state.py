"""What a shell session carries from call to call: the script that restores it, and the dump that it is made of.

Bash sources the script as $BASH_ENV before the command, so the command itself is a plain `bash -c COMMAND`.
"""

from __future__ import annotations

import re

from sandbox.backends.namespaces.inside.protocol import DUMP_FD, QUIET_FD, STATE_FD

_OPEN = (
    # errors of ours are not output; aliases work as at a prompt
    f"unset BASH_ENV BASH_EXECUTION_STRING; exec {STATE_FD}<&- {QUIET_FD}>&2 2>/dev/null; shopt -s expand_aliases\n"
)
_DUMP = (
    "builtin trap '{ builtin unset BASH_EXECUTION_STRING; builtin declare -p; builtin declare -f; builtin alias -p; "
    'builtin shopt -p; builtin printf "builtin cd -- %q\\n" "$PWD"; builtin set +o; '
    f"}} >&{DUMP_FD} 2>/dev/null' EXIT\n"
)
_CLOSE = f"exec 2>&{QUIET_FD} {QUIET_FD}>&-\n"
_NOT_CARRIED = re.compile(
    rb"^declare -\S+ (?:BASH\w*|EUID|UID|PPID|SHELLOPTS|FUNCNAME|GROUPS|DIRSTACK|RESULT_FD|PIPESTATUS|RANDOM|SRANDOM|"
    rb"LINENO|EPOCHSECONDS|EPOCHREALTIME|SECONDS|COMP_WORDBREAKS|_)(?:=.*)?\n"
    rb"|^shopt -\w (?:extdebug|login_shell|restricted_shell)\n",
    re.MULTILINE,
)


def opening(carried: bytes, *, keep: bool) -> bytes:
    """The script for a call: restores `carried`, and with `keep` sets the trap that dumps the state at the end."""
    trap = _DUMP if keep else ""
    return (_OPEN + trap).encode() + carried + _CLOSE.encode()  # the carried options come last: `set -e` may be one


def carried(dump: bytes, private: tuple[str, ...]) -> bytes:
    """The dump without what bash sets itself and without the variables that were given to this call alone."""
    state = _NOT_CARRIED.sub(b"", dump)
    if private:
        names = b"|".join(re.escape(name.encode()) for name in private)
        state = re.sub(rb"^declare -\S+ (?:%s)(?:=.*)?\n" % names, b"", state, flags=re.MULTILINE)
    return state
