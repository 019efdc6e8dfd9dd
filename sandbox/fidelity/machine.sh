#!/bin/bash
# Makes the reference profile's machine and records it: a stock Debian with a developer's packages in a disk image, booted
# under QEMU, where a user logs in, uses common programs once, and runs probe.sh, early.sh and curious.sh in each checkout.
# Needs root, mmdebstrap, qemu-system-x86 and e2fsprogs; without KVM about 40 minutes on a busy machine (ACCEL=kvm where it works).
#   bash machine.sh REPOSITORIES OUT     (REPOSITORIES: folders of files, each becomes a checkout of the user)
set -euo pipefail
repositories=$(realpath "$1") out=$(realpath -m "$2") here=$(dirname "$(realpath "$0")")
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

mmdebstrap --variant=standard --include=linux-image-amd64,systemd-sysv,dbus,cron,sudo,openssh-server,locales,git,\
build-essential,python3,python3-pip,python3-venv,python3-pytest,vim,curl,wget,tmux,jq,rsync,htop,man-db,less,bash-completion \
  bookworm "$work/root.tar"
mkdir "$work/root" && tar -C "$work/root" --exclude='./dev/*' -xf "$work/root.tar" && rm "$work/root.tar"
cd "$work/root"
echo workstation > etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 workstation\n' > etc/hosts
echo 'LABEL=root / ext4 errors=remount-ro 0 1' > etc/fstab
sed -i 's/# en_US.UTF-8/en_US.UTF-8/' etc/locale.gen && chroot . locale-gen > /dev/null && echo LANG=en_US.UTF-8 > etc/default/locale
chroot . useradd -m -s /bin/bash -c 'User Name,,,' -G sudo,adm,cdrom,plugdev,users user
printf '[Match]\nName=en*\n[Network]\nDHCP=yes\n' > etc/systemd/network/lan.network
chroot . systemctl enable systemd-networkd > /dev/null 2>&1
mkdir -p home/user/src opt/record && cp -r "$repositories"/. home/user/src/ && cp "$here"/*.sh opt/record/
printf '[user]\n\tname = User Name\n\temail = user.name@company.test\n' > home/user/.gitconfig
cat > opt/record/use.sh <<'USE'
# What leaves traces in a home: programs that a person works with, once each.
mkdir -p ~/Documents ~/Downloads ~/notes && echo 'call back' > ~/notes/todo.txt
ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
ssh -o BatchMode=yes -o StrictHostKeyChecking=no localhost true
wget -q -O ~/Downloads/index.html http://localhost/
pip list > /dev/null
typed() { timeout --foreground 60 script -qec "$1" /dev/null <<< "$2"; }
typed 'vim notes/todo.txt' ':wq'
typed 'less notes/todo.txt' '/callqq'
typed python3 $'import sys\nexit()'
typed htop q
typed 'bash -i' $'cd src\nls\ngit --version\nhistory | tail\nexit'
USE
cat > opt/record/run.sh <<'RUN'
unset INVOCATION_ID JOURNAL_STREAM SYSTEMD_EXEC_PID MEMORY_PRESSURE_WATCH MEMORY_PRESSURE_WRITE  # of the service, not of a login
cd ~ && bash /opt/record/use.sh > /var/tmp/out/use.log 2>&1 < /dev/null
cd ~/src
for repository in */; do (cd "$repository" && git init -q -b main && git add -A && git commit -q -m 'Initial import'); done
for repository in */; do
  for script in probe early curious; do (cd "$repository" && bash /opt/record/$script.sh > "/var/tmp/out/${repository%/}.$script" 2>&1); done
  echo "recorded $repository" > /var/tmp/out/progress
done
sync; sudo systemctl poweroff
RUN
mkdir -m 1777 var/tmp/out
echo 'user ALL=(ALL) NOPASSWD: /usr/bin/systemctl poweroff' > etc/sudoers.d/poweroff
cat > etc/systemd/system/record.service <<'UNIT'
[Unit]
After=multi-user.target getty.target
Conflicts=getty@tty1.service
[Service]
User=user
PAMName=login
WorkingDirectory=~
TTYPath=/dev/tty1
StandardInput=tty
StandardOutput=tty
StandardError=tty
TTYReset=yes
TimeoutStartSec=infinity
ExecStartPre=/bin/sleep 20
ExecStart=/bin/bash -lc 'bash /opt/record/run.sh'
[Install]
WantedBy=default.target
UNIT
chroot . systemctl enable record > /dev/null 2>&1
chroot . chown -R user:user /home/user
cd "$work" && truncate -s 6G disk && mke2fs -q -t ext4 -L root -d root disk
timeout "${SECONDS_AT_MOST:-3600}" qemu-system-x86_64 -m 2048 -smp 2 -accel "${ACCEL:-tcg}" -nographic -no-reboot \
  -kernel "$(ls root/boot/vmlinuz-*)" -initrd "$(ls root/boot/initrd.img-*)" -append 'root=/dev/vda ro console=ttyS0' \
  -drive file=disk,format=raw,if=virtio -nic user,model=virtio-net-pci > "$out/console.log" 2>&1 < /dev/null
debugfs -R "rdump /var/tmp/out $out" disk 2> /dev/null
ls "$out/out" | wc -l
