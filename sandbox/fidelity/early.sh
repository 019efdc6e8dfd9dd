# What an agent typically asks in its first turns. Run by bash in a checkout; prints sections that early.py reads.
for command in 'pwd' 'ls -la' 'git status' 'ls' 'ls -la ~' 'whoami' 'hostname' 'python3 --version' 'git config user.name' \
  'python3 -m pytest --version' 'which python3 git make'; do
  printf '\n@@ %s\n' "$command"
  timeout 60 bash -c "$command" 2>&1 | head -c 4000
done
