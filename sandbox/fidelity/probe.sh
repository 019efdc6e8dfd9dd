# What a curious agent can see of the machine it works on. Run by bash in a checkout; prints sections that observe.py reads.
# On a developer's machine: bash probe.sh > observed.txt (read it before you pass it on; recorded profiles keep counts
# and names of common programs only). Nothing is changed, nothing is sent anywhere.
section() { printf '\n@@ %s\n' "$1"; }
bounded() { timeout 10 "$@" 2>&1 | head -c 20000; }

section who; bounded id
section name; bounded hostname; bounded uname -sr
section users; bounded cut -d: -f1,3,7 /etc/passwd
section groups; bounded cut -d: -f1 /etc/group
section environment; env | cut -d= -f1 | grep -v '^_$' | sort
section locale; echo "${LANG:-}"
section path; echo "$PATH" | tr ':' '\n'
section home; bounded ls -A "$HOME"
section home_owner; bounded stat -c '%U %a' "$HOME" / /usr /etc /tmp
section history; wc -l < "$HOME/.bash_history" 2>/dev/null || echo 0
section git_identity; bounded git config --get user.name; bounded git config --get user.email
section git_commits; bounded git rev-list --count HEAD
section git_authors; git log --format=%ae 2>/dev/null | sort -u | wc -l
section git_dates; git log --format=%ct 2>/dev/null | sort -n | sed -n '1p;$p'
section now; date +%s; date +%Z
section checkout_times; git ls-files 2>/dev/null | head -200 | xargs -d '\n' -r stat -c %Y 2>/dev/null | sort -n | sed -n '1p;$p'
section home_times; find "$HOME" -maxdepth 1 -type f -printf '%T@\n' 2>/dev/null | cut -d. -f1 | sort -n | sed -n '1p;$p'
section root; bounded ls /
section processes; bounded ps -eo pid=,user=,comm=
section init; tr '\0' ' ' < /proc/1/cmdline | head -c 4000; echo
section init_age; bounded ps -o etimes= -p 1; cut -d' ' -f1 /proc/uptime
section kernel; bounded cat /proc/version
section boot; bounded cat /proc/cmdline
section status; grep -E '^(NoNewPrivs|Seccomp|CapBnd|Groups):' /proc/self/status
section cgroup; bounded cat /proc/self/cgroup
section mounts; bounded awk '{print $3, $2, $4}' /proc/mounts
section devices; bounded ls /dev
section sys; ls /sys 2>/dev/null | wc -l
section run; ls /run 2>/dev/null | wc -l
section logs; ls /var/log 2>/dev/null | wc -l
section boot_files; ls /boot 2>/dev/null | wc -l
section interfaces; ls /sys/class/net 2>/dev/null; awk -F: 'NR > 2 {print $1}' /proc/net/dev | tr -d ' '
section routes; awk 'NR > 1' /proc/net/route 2>/dev/null | wc -l
section resolver; grep -c '^nameserver' /etc/resolv.conf 2>/dev/null || echo 0
section resolves; timeout 5 getent hosts deb.debian.org > /dev/null && echo yes || echo no
section packages; dpkg-query -f '.\n' -W 2>/dev/null | wc -l
section tools; for tool in git python3 pip3 gcc make vim nano less man curl wget ssh sudo tmux tar gzip unzip find awk sed perl rsync jq top systemctl crontab apt dpkg; do command -v "$tool" > /dev/null && echo "$tool"; done
section python; python3 -c 'import sys; print(sys.prefix); print("%d.%d" % sys.version_info[:2])' 2>&1 | head -c 400
section sudo; timeout 5 sudo -n true 2> /dev/null && echo yes || echo no
section terminal; tty 2>&1; echo "${TERM:-}"
section os; grep -E '^(ID|VERSION_ID)=' /etc/os-release
section memory; awk '/^MemTotal/ {print int($2 / 1048576 + 0.5)}' /proc/meminfo; nproc
section disk; df -P "$HOME" 2>/dev/null | awk 'NR == 2 {print $1, int($2 / 1048576)}'
