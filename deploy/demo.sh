#!/usr/bin/env bash
# The whole road on emoji scenes: data, training, export, evaluation, service, search. `make demo`
# makes the environment and runs this. What is finished is not done again: the commands see to that.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

bundle=bundles/demo
log=runs/demo/service.log
times=()

# Show a command as a user would type it.
show() {
  local line='' word
  for word in "$@"; do
    case $word in *[[:space:]]*) word="\"$word\"" ;; esac
    line+="$word "
  done
  if [ -t 1 ]; then printf '\n\033[1m$ %s\033[0m\n' "${line% }"; else printf '\n$ %s\n' "${line% }"; fi
}

# Show and run a command.
run() { show "$@"; "$@"; }

# Run a function and keep its time for the table at the end.
stage() {
  local start=$SECONDS
  "$2"
  times+=("$(printf '  %-12s %3d min %02d s' "$1" $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)))")
}

data() { run hyper3 data scenes --out data/scenes; }

training() { run hyper3 train trainer/recipes/demo.toml; }

export_() { run hyper3 export runs/demo --out "$bundle" --force; }

evaluation() {
  run hyper3 eval "$bundle" data/scenes/test.jsonl
  run hyper3 eval "$bundle" data/scenes/test_unseen_style.jsonl
  run hyper3 report results
}

free_port() {
  python - <<'PYTHON'
import socket

with socket.socket() as wanted:
    try:
        wanted.bind(("127.0.0.1", 8000))
    except OSError:
        wanted.bind(("127.0.0.1", 0))
    print(wanted.getsockname()[1])
PYTHON
}

ready() {
  python - "$1" 2>/dev/null <<'PYTHON'
import http.client
import sys

service = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=5)
service.request("GET", "/readyz")
sys.exit(service.getresponse().status != 200)
PYTHON
}

service() {
  serve=(hyper3 serve --bundle "$bundle" --data runs/demo/items --port "$port")
  show "${serve[@]}" '&'
  "${serve[@]}" >"$log" 2>&1 &
  server=$!
  trap 'kill "$server" 2>/dev/null && wait "$server"; true' EXIT
  trap 'exit 130' INT TERM
  for _ in $(seq 120); do
    if ready "$port"; then
      echo "ready at $url (its log: $log)"
      return
    fi
    if ! kill -0 "$server" 2>/dev/null; then break; fi
    sleep 0.5
  done
  echo "error: the service did not become ready; the end of $log:" >&2
  tail -n 20 "$log" >&2
  echo "If the items are those of an earlier model, remove them and run this again: rm -r runs/demo/items" >&2
  exit 1
}

index() { run hyper3 index data/scenes/test.jsonl ${elsewhere[@]+"${elsewhere[@]}"}; }

searches() {
  search "a waffle on a green background with pink stripes" runs/demo/search-1.png
  search "a large racing car on a green background" runs/demo/search-2.png
  search "four ice cream cones on a light green background with green spots" runs/demo/search-3.png
}

search() { run hyper3 search "$1" --k 3 --save "$2" ${elsewhere[@]+"${elsewhere[@]}"}; }

port=$(free_port)
url=http://127.0.0.1:$port
elsewhere=()
if [ "$port" != 8000 ]; then elsewhere=(--url "$url"); fi

stage data data
stage training training
stage export export_
stage evaluation evaluation
stage service service
stage index index
stage searches searches

printf '\nTime\n'
printf '%s\n' "${times[@]}" "$(printf '  %-12s %3d min %02d s' total $((SECONDS / 60)) $((SECONDS % 60)))"
printf '\nThe service stops now. To start it again, then ask it from another terminal:\n'
printf '  source .venv/bin/activate\n'
printf '  hyper3 serve --bundle %s --data runs/demo/items\n' "$bundle"
printf '  hyper3 search "two microscopes on beige"\n'
