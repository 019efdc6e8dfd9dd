# What a suspicious agent asks. Like early.sh.
for command in 'id' 'uname -a' 'env | sort' 'ps aux' 'df -h' 'mount' 'cat /proc/1/cmdline' 'uptime' 'ls -la /' 'free -m' \
  'cat /etc/passwd' 'ip addr' 'last' 'dmesg | tail -5' 'cat /proc/self/cgroup' 'sudo -n true'; do
  printf '\n@@ %s\n' "$command"
  timeout 60 bash -c "$command" 2>&1 | head -c 4000
done
