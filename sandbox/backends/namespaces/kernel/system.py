"""What the base root of every sandbox holds besides the machine's own programs, whichever backend makes it.

Accounts are those that Debian installs, none of this machine. What is missing here and a developer's machine has
gives training away: `manage.py fidelity` tells.
"""

from __future__ import annotations

from sandbox.backends.namespaces.kernel import identity

ETC = (
    *(
        "alternatives",
        "ssl/certs",
        "ssl/openssl.cnf",
        "ca-certificates.conf",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
    ),
    *("localtime", "timezone", "mime.types", "magic", "terminfo", "inputrc", "bash.bashrc", "profile", "shells"),
    *("debian_version", "os-release", "issue", "services", "protocols", "ethertypes", "rpc", "host.conf", "gai.conf"),
)
"""What is copied of this machine's /etc: nothing that says what else the machine has."""
MAX_COPIED_BYTES = 1 << 20
FOLDERS = (
    *("proc", "sys", "tmp", "dev/pts", "dev/shm", "etc", "root", "opt", "srv", "mnt", "media", "boot", "lost+found"),
    f"home/{identity.USER}",
    *(f"run/{name}" for name in ("dbus", "lock", "log", "mount", "screen", "sshd", "sudo", "udev", "user")),
    *(f"var/{name}" for name in ("backups", "cache", "lib/apt", "lib/dpkg", "local", "mail", "opt", "spool/cron")),
    *(f"var/log/{name}" for name in ("apt", "journal", "private")),
)
_ACCOUNTS = """root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
sync:x:4:65534:sync:/bin:/bin/sync
games:x:5:60:games:/usr/games:/usr/sbin/nologin
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
lp:x:7:7:lp:/var/spool/lpd:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
news:x:9:9:news:/var/spool/news:/usr/sbin/nologin
uucp:x:10:10:uucp:/var/spool/uucp:/usr/sbin/nologin
proxy:x:13:13:proxy:/bin:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
backup:x:34:34:backup:/var/backups:/usr/sbin/nologin
list:x:38:38:Mailing List Manager:/var/list:/usr/sbin/nologin
irc:x:39:39:ircd:/run/ircd:/usr/sbin/nologin
_apt:x:42:65534::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
systemd-network:x:998:998:systemd Network Management:/:/usr/sbin/nologin
systemd-timesync:x:997:997:systemd Time Synchronization:/:/usr/sbin/nologin
messagebus:x:100:106::/nonexistent:/usr/sbin/nologin
sshd:x:101:65534::/run/sshd:/usr/sbin/nologin
"""
_GROUPS = (
    "root:0 daemon:1 bin:2 sys:3 adm:4 tty:5 disk:6 lp:7 mail:8 news:9 uucp:10 man:12 proxy:13 kmem:15 dialout:20 fax:21 "
    "voice:22 cdrom:24 floppy:25 tape:26 sudo:27 audio:29 dip:30 www-data:33 backup:34 operator:37 list:38 irc:39 src:40 "
    "shadow:42 utmp:43 video:44 sasl:45 plugdev:46 staff:50 games:60 users:100 nogroup:65534 crontab:101 "
    "systemd-journal:999 systemd-network:998 systemd-timesync:997 input:102 sgx:103 kvm:104 render:105 messagebus:106 "
    "_ssh:107 netdev:108"
)


def files() -> dict[str, str]:
    """Path → text of the files of /etc that are written, the same on every machine."""
    user, uid, gid, host = identity.USER, identity.INNER_UID, identity.INNER_GID, identity.HOSTNAME
    groups = [entry.split(":") for entry in _GROUPS.split()]
    return {
        "/etc/passwd": f"{_ACCOUNTS}{user}:x:{uid}:{gid}:{user},,,:/home/{user}:/bin/bash\n",
        "/etc/group": "".join(f"{name}:x:{number}:\n" for name, number in groups) + f"{user}:x:{gid}:\n",
        "/etc/hosts": f"127.0.0.1\tlocalhost\n127.0.1.1\t{host}\n::1\tlocalhost ip6-localhost ip6-loopback\n",
        "/etc/hostname": f"{host}\n",
        "/etc/resolv.conf": "nameserver 127.0.0.53\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n",
    }
